package dbtest

import (
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// wire reads and forwards the messages of a connection, as its protocol separates them. One goroutine calls the first two
// methods, and another one the others.
type wire interface {
	readRequest() (request, error)    // into the buffer of what the server gets next
	sendRequest() error               // the buffer
	readReply() (ready bool, _ error) // a message of it; ready: rules on the reply act now
	sendReply() error                 // what was read
}

// request is what a client sends at once.
type request struct {
	statements []string // that it executes. One that is only prepared does not count
	hasReply   bool
}

// postgreSQLWire is PostgreSQL's protocol. A request is one simple query, or the messages of the extended protocol up to a
// Sync. The server ends its reply with one ReadyForQuery.
type postgreSQLWire struct {
	client   *pgproto3.Backend
	server   *pgproto3.Frontend
	prepared map[string]string // by the name of the prepared statement
}

// newPostgreSQLWire forwards the first message. A connection that only cancels a statement is an error.
func newPostgreSQLWire(client, server net.Conn) (*postgreSQLWire, error) {
	w := &postgreSQLWire{pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server), map[string]string{}}
	first, err := w.client.ReceiveStartupMessage()
	if err != nil {
		return nil, err
	}
	w.server.Send(first)
	if err := w.server.Flush(); err != nil {
		return nil, err
	}
	if _, ok := first.(*pgproto3.StartupMessage); !ok {
		return nil, net.ErrClosed
	}
	return w, nil
}

func (w *postgreSQLWire) sendRequest() error { return w.server.Flush() }

func (w *postgreSQLWire) sendReply() error { return w.client.Flush() }

func (w *postgreSQLWire) readReply() (ready bool, _ error) {
	m, err := w.server.Receive()
	if err != nil {
		return false, err
	}
	w.client.Send(m)
	_, ready = m.(*pgproto3.ReadyForQuery)
	return ready, nil
}

func (w *postgreSQLWire) readRequest() (q request, _ error) {
	q.hasReply = true
	bound := ""
	for {
		m, err := w.client.Receive()
		if err != nil {
			return q, err
		}
		w.server.Send(m)
		switch m := m.(type) {
		case *pgproto3.Query:
			q.statements = append(q.statements, m.String)
			return q, nil
		case *pgproto3.Parse:
			w.prepared[m.Name] = m.Query
		case *pgproto3.Bind:
			bound = w.prepared[m.PreparedStatement]
		case *pgproto3.Execute:
			q.statements = append(q.statements, bound)
		case *pgproto3.Sync:
			return q, nil
		case *pgproto3.Terminate:
			q.hasReply = false
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
