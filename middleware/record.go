package middleware

// This file contains what the middleware stores: the note of a claim, and the record of a response.

import (
	"time"

	"github.com/onceguard/onceguard/middleware/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// encodeNote returns the note of the request's claim, in room if it fits.
func (c *call) encodeNote(room []byte) []byte {
	encryptedFor := ""
	if len(c.codec.Keys) > 0 { // only encryption needs the storage key before the claim has returned it
		encryptedFor = c.storageKey()
	}
	note := record.Note{Fingerprint: c.identity.fingerprints[0], Journaled: c.journal != nil}
	return c.codec.EncodeNote(room, encryptedFor, note)
}

// newRecord returns the record of a response that was completed at that time.
func (c *call) newRecord(r *response.Response, completed time.Time) record.Record {
	made := record.Record{Fingerprint: c.identity.fingerprints[0], Completed: completed, Response: r}
	if c.traceparent != nil {
		made.Trace = record.ParseTrace(c.traceparent(c.r.Context()))
	}
	return made
}

// encode returns the bytes of the record, in new memory.
func (c *call) encode(r *record.Record) []byte {
	return c.codec.Append(make([]byte, 0, r.Room()), c.running.writer.Scratch(), c.identity.storageKey, r)
}
