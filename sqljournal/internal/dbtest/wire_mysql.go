package dbtest

import (
	"io"
	"net"
	"strings"
)

// mysqlWire is MySQL's protocol. A message is a packet: three bytes that are its length, its number and its payload. A
// client's command has the number 0, and waits for its reply. So the first packet of the reply is where rules act: when the
// server sends it, it has executed the command.
type mysqlWire struct {
	client, server net.Conn
	request, reply []byte // one packet each
	prepared       string // the last one, which database/sql executes next
}

func readPacket(from net.Conn) ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	packet := append(header, make([]byte, length)...)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err
}

func (w *mysqlWire) sendRequest() error {
	_, err := w.server.Write(w.request)
	return err
}

func (w *mysqlWire) sendReply() error {
	_, err := w.client.Write(w.reply)
	return err
}

// The commands that matter.
const (
	comQuit         = 0x01
	comQuery        = 0x03
	comPrepare      = 0x16
	comExecute      = 0x17
	comSendLongData = 0x18
	comClose        = 0x19
)

func (w *mysqlWire) readRequest() (statement string, hasReply bool, err error) {
	if w.request, err = readPacket(w.client); err != nil {
		return "", false, err
	}
	number, payload := w.request[3], w.request[4:]
	if number != 0 || len(payload) == 0 { // a part of the login, or of a longer command
		return "", false, nil
	}
	switch payload[0] {
	case comQuit, comSendLongData, comClose:
		return "", false, nil
	case comQuery:
		statement = standardized(string(payload[1:]))
	case comExecute:
		statement = w.prepared
	case comPrepare:
		w.prepared = standardized(string(payload[1:]))
	}
	return statement, true, nil
}

func (w *mysqlWire) readReply() (err error) {
	w.reply, err = readPacket(w.server)
	return err
}

// standardized returns a statement as the one for PostgreSQL begins, so that one [Match] finds both. The level of isolation
// is a statement of its own, before the one that begins the transaction.
func standardized(statement string) string {
	return strings.NewReplacer("onceguard_journal.key", "key", "j.key", "key", "onceguard_journal j set until = until + (note <=> unhex(?)), ", "onceguard_journal set ",
		"onceguard_journal j ", "onceguard_journal ", "START TRANSACTION", "begin", "SET TRANSACTION ISOLATION LEVEL", "begin isolation level",
		"began_at, until", "until").Replace(statement)
}
