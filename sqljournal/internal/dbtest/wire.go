package dbtest

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// request is one simple query, or the messages of the extended protocol up to a Sync. The server ends its reply with
// one ReadyForQuery.
type request struct {
	statements []string // that it executes
	quits      bool     // it ends the connection, and gets no reply
}

// requests puts a client's messages together.
type requests struct {
	client   *pgproto3.Backend
	server   *pgproto3.Frontend
	prepared map[string]string // by the name of the prepared statement
}

// next reads a request into the buffer of what the server gets next. A statement that is only prepared does not count as
// executed.
func (r *requests) next() (q request, _ error) {
	bound := ""
	for {
		m, err := r.client.Receive()
		if err != nil {
			return q, err
		}
		r.server.Send(m)
		switch m := m.(type) {
		case *pgproto3.Query:
			q.statements = append(q.statements, m.String)
			return q, nil
		case *pgproto3.Parse:
			r.prepared[m.Name] = m.Query
		case *pgproto3.Bind:
			bound = r.prepared[m.PreparedStatement]
		case *pgproto3.Execute:
			q.statements = append(q.statements, bound)
		case *pgproto3.Sync:
			return q, nil
		case *pgproto3.Terminate:
			q.quits = true
			return q, nil
		}
	}
}

// Match reports whether a [Rule] applies to a request that executes these statements.
type Match func(statements []string) bool

// Statement matches requests that execute a statement with this beginning, in any case.
func Statement(prefix string) Match {
	return func(statements []string) bool {
		return slices.ContainsFunc(statements, func(s string) bool {
			s = strings.TrimSpace(s)
			return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
		})
	}
}
