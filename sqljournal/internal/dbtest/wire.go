package dbtest

import (
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// wire reads and forwards the messages of a connection, as its protocol separates them. One goroutine calls the first two
// methods, and another one the others.
type wire interface {
	// readRequest reads what the client sends at once, and returns the statement that it executes. One that is only prepared
	// does not count.
	readRequest() (statement string, hasReply bool, _ error)
	sendRequest() error // what was read
	readReply() error   // or the first part of it: the server has executed the request
	sendReply() error   // what was read
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

func (w *postgreSQLWire) readReply() error {
	for {
		m, err := w.server.Receive()
		if err != nil {
			return err
		}
		w.client.Send(m)
		if _, ready := m.(*pgproto3.ReadyForQuery); ready {
			return nil
		}
	}
}

func (w *postgreSQLWire) readRequest() (statement string, hasReply bool, _ error) {
	for {
		m, err := w.client.Receive()
		if err != nil {
			return "", false, err
		}
		w.server.Send(m)
		switch m := m.(type) {
		case *pgproto3.Query:
			return m.String, true, nil
		case *pgproto3.Parse:
			w.prepared[m.Name] = m.Query
		case *pgproto3.Bind:
			statement = w.prepared[m.PreparedStatement]
		case *pgproto3.Sync:
			return statement, true, nil
		case *pgproto3.Terminate:
			return "", false, nil
		}
	}
}

// Match reports whether a [Rule] applies to a request that executes this statement.
type Match func(statement string) bool

// Statement matches requests that execute a statement with this beginning, in any case.
func Statement(prefix string) Match {
	return func(statement string) bool {
		statement = strings.TrimSpace(statement)
		return len(statement) >= len(prefix) && strings.EqualFold(statement[:len(prefix)], prefix)
	}
}
