package rediserr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replied is an error that the server has sent, as go-redis marks one.
type replied string

func (e replied) Error() string { return string(e) }

func (replied) RedisError() {}

// kinds is what the functions of this package report about an error.
type kinds struct {
	reply, foreign, arrived, temporary, refusesWrites, moved, timeout bool
}

func kindsOf(err error) kinds {
	return kinds{
		reply: rediserr.IsReply(err), foreign: rediserr.IsForeign(err), arrived: rediserr.MayHaveArrived(err),
		temporary: rediserr.IsTemporary(err), refusesWrites: rediserr.RefusesWrites(err), moved: rediserr.IsRedirection(err),
		timeout: rediserr.IsTimeout(err),
	}
}

const (
	wrongType  = "WRONGTYPE Operation against a key holding the wrong kind of value"
	oom        = "OOM command not allowed when used memory > 'maxmemory'."
	readOnly   = "READONLY You can't write against a read only replica."
	noReplicas = "NOREPLICAS Not enough good replicas to write."
	misconf    = "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk."
	digest     = "f_4a1e7b0f2f1c5e3d6a8b9c0d1e2f3a4b5c6d7e8f"
	before7    = "ERR Error running script (call to " + digest + "): @user_script:19: "
	since7     = " script: 4a1e7b0f2f1c5e3d6a8b9c0d1e2f3a4b5c6d7e8f, on @user_script:19."
)

func TestKindsOfReplies(t *testing.T) {
	t.Parallel()
	// Whatever the server has answered, it has not executed the command.
	for text, want := range map[string]kinds{
		"ERR syntax error": {},
		"ERR unknown command 'SPUBLISH', with args beginning with: 'k' ''":   {},
		"NOPERM this user has no permissions to run the 'evalsha' command":   {},
		"NOSCRIPT No matching script. Please use EVAL.":                      {},
		"FENCE the counter ns:{0000}fence has another type":                  {},
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL": {},
		"CROSSSLOT Keys in request don't hash to the same slot":              {},

		wrongType:           {foreign: true},
		wrongType + since7:  {foreign: true},
		before7 + wrongType: {foreign: true},

		"LOADING Redis is loading the dataset in memory":                            {temporary: true},
		"CLUSTERDOWN The cluster is down":                                           {temporary: true},
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'.": {temporary: true},
		"TRYAGAIN Multiple keys request during rehashing of slot":                   {temporary: true},
		"ERR max number of clients reached":                                         {temporary: true},
		readOnly:                                                                    {temporary: true},
		readOnly + since7:                                                           {temporary: true},

		"MOVED 3999 127.0.0.1:6381": {temporary: true, moved: true},
		"ASK 3999 127.0.0.1:6381":   {temporary: true, moved: true},
		"MOVED 3999":                {}, // names no node

		oom:          {refusesWrites: true},
		oom + since7: {refusesWrites: true},
		noReplicas:   {refusesWrites: true},
		misconf:      {refusesWrites: true},
	} {
		want.reply = true
		if got := kindsOf(replied(text)); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", text, got, want)
		}
	}
	if addr, ok := rediserr.Redirection(replied("MOVED 3999 ::1:6381")); addr != "::1:6381" || !ok {
		t.Errorf("MOVED to %q, %t", addr, ok)
	}
	if addr, ok := rediserr.Redirection(replied("ASK 3999 a.example.net:6379")); addr != "a.example.net:6379" || !ok {
		t.Errorf("ASK of %q, %t", addr, ok)
	}
}

func TestKindsOfOtherErrors(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	dialTimeout := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	read := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	readTimeout := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for name, test := range map[string]struct {
		err  error
		want kinds
	}{
		"dial":              {dial, kinds{temporary: true}},
		"dial timeout":      {dialTimeout, kinds{temporary: true, timeout: true}},
		"pool timeout":      {redis.ErrPoolTimeout, kinds{temporary: true}},
		"pool exhausted":    {redis.ErrPoolExhausted, kinds{temporary: true}},
		"closed":            {redis.ErrClosed, kinds{}},
		"closed, wrapped":   {fmt.Errorf("claim: %w", redis.ErrClosed), kinds{}},
		"connection reset":  {read, kinds{arrived: true, temporary: true}},
		"read timeout":      {readTimeout, kinds{arrived: true, temporary: true, timeout: true}},
		"EOF":               {io.EOF, kinds{arrived: true, temporary: true}},
		"cut reply":         {io.ErrUnexpectedEOF, kinds{arrived: true, temporary: true}},
		"deadline exceeded": {context.DeadlineExceeded, kinds{arrived: true, temporary: true, timeout: true}},
		"cancelled":         {context.Canceled, kinds{arrived: true, temporary: true}},
		"a hook's":          {errors.New("refused by a hook"), kinds{arrived: true, temporary: true}},
		"a text with a reply's words": {
			errors.New("proxy: " + wrongType), kinds{arrived: true, temporary: true},
		},
		"a wrapped reply": {
			fmt.Errorf("hook: %w", replied(wrongType)), kinds{reply: true, foreign: true},
		},
	} {
		if got := kindsOf(test.err); got != test.want {
			t.Errorf("%s (%v):\ngot  %+v\nwant %+v", name, test.err, got, test.want)
		}
	}
}

func TestNoErrorIsNoReply(t *testing.T) {
	t.Parallel()
	if rediserr.IsReply(nil) || rediserr.IsForeign(nil) || rediserr.IsRedirection(nil) || rediserr.RefusesWrites(nil) || rediserr.IsTimeout(nil) {
		t.Error("nil has a kind")
	}
	if got := rediserr.InScript(nil); got != nil {
		t.Errorf("InScript(nil) = %v", got)
	}
}

func TestInScript(t *testing.T) {
	t.Parallel()
	// Redis before 7.0 puts "-" before an error of its own, and not before one that the called command replied.
	for text, want := range map[string]string{
		before7 + "@user_script: 19: -" + oom:        oom,
		before7 + "@user_script: 19: -" + readOnly:   readOnly,
		before7 + "@user_script: 19: -" + noReplicas: noReplicas,
		before7 + "@user_script: 19: -" + misconf:    misconf,

		before7 + wrongType: before7 + wrongType, // IsForeign reads it as it is
		before7 + "@user_script: 19: Unknown Redis command called from Lua script": before7 + "@user_script: 19: Unknown Redis command called from Lua script",

		oom + since7:       oom + since7,
		wrongType + since7: wrongType + since7,

		wrongType:               wrongType,
		"ERR syntax error":      "ERR syntax error",
		"ERR no such thing: -1": "ERR no such thing: -1",
	} {
		got := rediserr.InScript(replied(text))
		if got.Error() != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
		if !rediserr.IsReply(got) {
			t.Errorf("%s: the result is not a reply of the server", text)
		}
	}
	notReply := errors.New(before7 + "@user_script: 19: -" + oom)
	if got := rediserr.InScript(notReply); got != notReply {
		t.Errorf("an error that is no reply: got %v", got)
	}
}
