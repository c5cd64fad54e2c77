package model_test

import "fmt"

// modelLease is a lease's length on the server, in ticks; a holder counts one tick less, and from before it sent.
const modelLease = 3

// modelClaims is how often each of the two processes claims the key, one claim after the other.
const modelClaims = 2

// modelPast is how many writes a replica may be behind.
const modelPast = 3

// modelToken names a claim: 1 and 2 are process A's, 3 and 4 are process B's. 0 is nobody's.
type modelToken uint8

func (t modelToken) String() string {
	return [...]string{"nobody", "A1", "A2", "B1", "B2"}[t]
}

// modelVerb is a command.
type modelVerb uint8

const (
	modelNothing modelVerb = iota
	modelClaim
	modelRenew
	modelSettle
	modelRelease
)

func (v modelVerb) String() string {
	return [...]string{"nothing", "claim", "renewal", "settle", "release"}[v]
}

// modelKind is what a key can be.
type modelKind uint8

const (
	modelAbsent modelKind = iota
	modelClaimed
	modelValue
)

// modelKey is what the server holds.
type modelKey struct {
	kind  modelKind
	token modelToken
	held  bool  // the claim outlives its lease, and is abandoned when left is 0
	left  uint8 // ticks until the claim's lease runs out
}

func (k modelKey) String() string {
	switch {
	case k.kind == modelAbsent:
		return "absent"
	case k.kind == modelValue:
		return fmt.Sprintf("value(%v)", k.token)
	case k.held:
		return fmt.Sprintf("held claim(%v, %d left)", k.token, k.left)
	}
	return fmt.Sprintf("claim(%v, %d left)", k.token, k.left)
}

// age lets one tick pass. Values stay: the end of their retention is what a flush is.
func (k *modelKey) age(holds bool) {
	if k.kind != modelClaimed {
		return
	}
	k.left = modelLess(k.left)
	if k.left == 0 && !(k.held && holds) {
		*k = modelKey{}
	}
}

// modelReply is what comes of a command, as far as its sender has to know.
type modelReply uint8

const (
	modelNone    modelReply = iota
	modelYes                // it is as was asked for
	modelRefused            // the key is somebody else's, in whatever state, or gone where it must not be
)

func (r modelReply) String() string { return [...]string{"none", "yes", "refused"}[r] }

// modelRenewal is where a renewal is.
type modelRenewal uint8

const (
	modelIdle modelRenewal = iota
	modelSent
	modelConfirmed // the server has answered, and the process has not heard it yet
)

// modelProc is a process. It works on one claim at a time: idle, claiming, running, settling or releasing, idle. A crash
// or giving up makes it idle, too. What it has to release beside that is modelState.unneeded.
type modelProc struct {
	begun   uint8      // claims so far
	running bool       // the handler works, and no command of its own is under way
	doing   modelVerb  // the command that it waits for
	reply   modelReply // to that command; none as long as the command is on its way
	valid   uint8      // ticks for which its lease is valid, as far as it knows
	blind   bool       // it is paused, and will act before it looks at its clock

	// The renewal goes on beside all of this.
	renewal    modelRenewal
	renewValid uint8 // what valid becomes when the renewal is confirmed: counted from when it was sent
}

// believes tells whether the process takes itself for the key's holder.
func (p *modelProc) believes() bool {
	return p.works() && (p.valid > 0 || p.blind)
}

func (p *modelProc) works() bool { return p.running || p.doing == modelSettle }

func (p *modelProc) idle() bool { return !p.running && p.doing == modelNothing }

// send begins the next command of the process.
func (p *modelProc) send(v modelVerb) {
	p.running, p.blind = false, false
	p.doing, p.reply = v, modelNone
}

// run begins the handler.
func (p *modelProc) run() {
	p.running = true
	p.doing, p.reply = modelNothing, modelNone
}

// modelLate is a command that is on its way although its sender does not wait for it.
type modelLate struct {
	verb    modelVerb
	watched bool // its caller has given up, and would still see its reply
}

// modelFaults counts faults of each kind.
type modelFaults struct {
	crash    uint8 // a process dies, and begins anew with its next claim
	lost     uint8 // the reply to a command that was carried out
	delayed  uint8 // a command arrives at any time after its sender gave up on it, or never
	paused   uint8 // a process acts without having looked at its clock
	failover uint8 // a replica takes over that is up to modelPast writes behind
	flush    uint8 // FLUSHALL, eviction, restart without persistence, the end of a value's retention
}

// modelState is the whole world. It is comparable: equal states are explored once.
type modelState struct {
	key   modelKey
	procs [2]modelProc
	late  [2*modelClaims + 1]modelLate // by token
	past  [modelPast]modelKey          // what the key was before the last writes, the latest first

	// unneeded are claims under a hold that no run needs, by token: their process releases them in the background.
	unneeded [2*modelClaims + 1]bool

	faults modelFaults // those that may still come

	// What has happened, for the invariants to look at.
	effects  uint8                   // 2 stands for more, too
	ran      [2*modelClaims + 1]bool // by token: a handler has begun; only with a hold
	recorded bool                    // a Settle arrived while the key was absent or its own, and nothing took the key away since
	acked    modelToken              // whose Settle was the first that was told to have succeeded
}

// token is that of the process's latest claim.
func (s *modelState) token(p int) modelToken {
	return modelToken(p*modelClaims) + modelToken(s.procs[p].begun)
}

// ended tells whether nobody works and nothing is on its way.
func (s *modelState) ended() bool {
	for p := range s.procs {
		if proc := s.procs[p]; !proc.idle() || proc.begun < modelClaims {
			return false
		}
	}
	return s.late == [len(s.late)]modelLate{} && s.unneeded == [len(s.unneeded)]bool{}
}

// finish lets the process be done with its claim.
func (s *modelState) finish(p int) { s.procs[p] = modelProc{begun: s.procs[p].begun} }

// lose ends the context of a lease that has run out or is known to be lost: it stays over, whatever a renewal says. A
// handler that has had no effect yet ends and releases, but not one that is paused.
func (s *modelState) lose(p int) {
	proc := &s.procs[p]
	proc.valid, proc.renewValid = 0, 0
	if proc.blind {
		return
	}
	if proc.renewal == modelConfirmed {
		proc.renewal = modelIdle
	}
	if proc.running {
		proc.send(modelRelease)
	}
}

// modelLess is n-1, but never below 0.
func modelLess(n uint8) uint8 { return max(n, 1) - 1 }
