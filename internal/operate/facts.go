package operate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// facts is a finding as JSON.
type facts struct {
	Key       string     `json:"key"`
	State     string     `json:"state"`
	Token     string     `json:"token,omitempty"`
	Run       string     `json:"run,omitempty"` // request, function
	Lock      bool       `json:"lock,omitempty"`
	Owner     string     `json:"owner,omitempty"` // of a lock
	Fence     int64      `json:"fence,omitempty"`
	Size      int        `json:"size,omitempty"`
	ClaimedAt *time.Time `json:"claimed_at,omitempty"`
	SettledAt *time.Time `json:"settled_at,omitempty"`
	LeaseLeft int64      `json:"lease_left_ms,omitempty"`
	HoldLeft  int64      `json:"hold_left_ms,omitempty"`
	TTL       int64      `json:"ttl_ms"`

	Stored  *storedFacts `json:"stored,omitempty"`
	Redis   string       `json:"redis,omitempty"` // the state in Redis, if a journal was asked as well; unknown, none
	Journal *rowFacts    `json:"journal,omitempty"`
}

type storedFacts struct {
	Status      int        `json:"status,omitempty"`
	Tombstone   bool       `json:"tombstone,omitempty"`
	Unknown     bool       `json:"unknown,omitempty"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	BodySize    int        `json:"body_size,omitempty"`
	Function    bool       `json:"function,omitempty"`
	Unreadable  string     `json:"unreadable,omitempty"`
}

type rowFacts struct {
	State    string     `json:"state"`
	BeganAt  *time.Time `json:"began_at,omitempty"`
	Left     int64      `json:"left_ms,omitempty"`
	Attempts int        `json:"attempts,omitempty"`
	Response bool       `json:"response,omitempty"`
	Size     int        `json:"size,omitempty"`
	Note     string     `json:"note,omitempty"`
}

func (s *session) newFacts(f *Finding) facts {
	at := func(t time.Time) *time.Time {
		t = t.UTC()
		if t.IsZero() || t.Year() < 0 || t.Year() > 9999 { // a damaged time, which JSON (RFC 3339) cannot express
			return nil
		}
		return &t
	}
	info := f.Redis
	out := facts{
		Key: info.Key, State: f.State().String(), Run: string(f.Run), Token: tokenOf(f), Lock: info.IsLock, Owner: info.Owner,
		Fence: info.Fence, Size: info.Size,
		ClaimedAt: at(info.ClaimedAt), SettledAt: at(info.SettledAt), LeaseLeft: info.LeaseLeft.Milliseconds(),
		HoldLeft: info.HoldLeft.Milliseconds(), TTL: info.TTL.Milliseconds(),
	}
	if f.Unreadable != nil {
		out.Stored = &storedFacts{Unreadable: f.Unreadable.Error()}
	}
	if r := f.Stored; r != nil {
		out.Stored = &storedFacts{
			Status: r.Status, Tombstone: r.Tombstone, Unknown: r.Unknown, CompletedAt: at(r.Completed), BodySize: r.BodySize,
			Function: f.Run == middleware.FunctionRun,
		}
	}
	if s.journal == nil {
		return out
	}
	r := f.Row
	out.Redis, out.Journal = f.RedisState(), &rowFacts{State: r.State.String()}
	if r.State != journal.Absent {
		*out.Journal = rowFacts{
			State: r.State.String(), BeganAt: at(r.Began), Left: r.Left.Milliseconds(), Attempts: r.Attempts,
			Response: r.Response, Size: r.Size, Note: string(r.Note),
		}
	}
	return out
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, printable(strings.TrimSuffix(b.String(), "\n")))
	return err
}
