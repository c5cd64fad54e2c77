package demo

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// Lane is one of the places where a request can arrive.
type Lane string

const (
	Unprotected Lane = "unprotected" // the shop without onceguard
	Protected   Lane = "protected"   // the same shop behind it
	Form        Lane = "form"        // the order form, which is protected too
)

const (
	maxWishes  = 200 // distinct keys of one visitor, until they start over
	maxRecords = 40  // requests that a visitor can see; a new one drops the oldest
	maxStreams = 4   // of one visitor
	maxLag     = 64  // messages that a stream may be behind, before it is dropped
)

// total is what one shop has sold.
type total struct {
	Orders int `json:"orders"`
	Cents  int `json:"cents"`
}

// record is what is known of one request. Its exported fields are guarded by shop.mu; times are milliseconds since the
// shop opened.
type record struct {
	shop  *shop
	epoch int    // the shop's, when the request arrived
	key   string // as it stands in Redis; "" until a protected run begins

	ID       int                `json:"id"`
	Lane     Lane               `json:"lane"`
	Wish     int                `json:"wish"` // requests with one key are one wish
	Try      int                `json:"try"`  // of that wish, in this lane, from 1
	Quantity int                `json:"quantity"`
	Instance int                `json:"instance"`
	State    string             `json:"state"` // sent, running, done, emptied
	Start    float64            `json:"start"`
	RunStart float64            `json:"runStart"` // 0: it has not run
	Run      float64            `json:"run"`      // how long it ran
	Took     float64            `json:"took"`     // until the response
	Redis    float64            `json:"redis"`    // of that, spent on Redis
	Outcome  middleware.Outcome `json:"outcome"`  // "" if it is unprotected
	Status   int                `json:"status"`
	Lost     bool               `json:"lost"` // the client had left before the response
}

// message is the data of one event: all of a shop, or what has changed.
type message struct {
	All     bool           `json:"all"` // records are all that there are
	Now     float64        `json:"now"`
	Wishes  int            `json:"wishes"` // how many orders the visitor wanted of the two shops
	Totals  map[Lane]total `json:"totals"`
	Records []record       `json:"records"`
}

// shop has what one visitor has done. It is safe for concurrent use.
type shop struct {
	opened time.Time

	mu      sync.Mutex
	epoch   int // counts how often the visitor started over
	used    time.Time
	active  int // requests that have not ended
	lastID  int
	wishes  map[[sha256.Size]byte]int
	wanted  int // wishes but for those of the form
	totals  map[Lane]total
	records []*record // the last maxRecords
	streams map[chan []byte]bool
}

func newShop() *shop {
	return &shop{
		opened:  time.Now(),
		wishes:  map[[sha256.Size]byte]int{},
		totals:  map[Lane]total{},
		streams: map[chan []byte]bool{},
	}
}

// since returns the time since the shop opened.
func (s *shop) since() float64 { return milliseconds(time.Since(s.opened)) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// begin records a request that has arrived. It returns nil if the visitor has had enough orders.
func (s *shop) begin(lane Lane, key [sha256.Size]byte, quantity, instance int) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	wish, known := s.wishes[key]
	if !known {
		if len(s.wishes) == maxWishes {
			return nil
		}
		wish = len(s.wishes) + 1
		s.wishes[key] = wish
		if lane != Form {
			s.wanted++
		}
	}
	try := 1
	for _, r := range s.records {
		if r.Wish == wish && r.Lane == lane && r.State != "emptied" {
			try++
		}
	}
	s.active++
	return s.add(&record{Lane: lane, Wish: wish, Try: try, Quantity: quantity, Instance: instance, State: "sent"})
}

// emptied records that Redis has been emptied.
func (s *shop) emptied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(&record{Lane: Protected, Wish: len(s.wishes), State: "emptied"})
}

// add adds and publishes a record. s.mu is held.
func (s *shop) add(rec *record) *record {
	s.lastID++
	rec.shop, rec.epoch, rec.ID, rec.Start = s, s.epoch, s.lastID, s.since()
	if len(s.records) == maxRecords {
		s.records = append(s.records[:0], s.records[1:]...)
	}
	s.records = append(s.records, rec)
	s.publish(rec)
	return rec
}

// change calls f and publishes the record, unless the visitor has started over since.
func (s *shop) change(rec *record, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec.epoch != s.epoch {
		return
	}
	f()
	s.publish(rec)
}

// running records that the handler has begun, under the key as it stands in Redis.
func (s *shop) running(rec *record, key string) {
	s.change(rec, func() { rec.State, rec.RunStart, rec.key = "running", s.since(), key })
}

// ran records how long the handler took.
func (s *shop) ran(rec *record, d time.Duration) {
	s.change(rec, func() { rec.Run = milliseconds(d) })
}

// placed records that an order was placed and a card charged.
func (s *shop) placed(rec *record, cents int) {
	s.change(rec, func() {
		t := s.totals[rec.Lane]
		s.totals[rec.Lane] = total{t.Orders + 1, t.Cents + cents}
	})
}

// observed records what Idempotency says. The end of the request publishes it.
func (s *shop) observed(rec *record, e middleware.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.Outcome = e.Outcome
	rec.Redis = milliseconds(e.Claim.Duration + e.Settle.Duration)
}

// end records that a request has been answered, or that nobody was there any more to take the answer.
func (s *shop) end(rec *record, status int, lost bool) {
	s.change(rec, func() { rec.State, rec.Status, rec.Lost, rec.Took = "done", status, lost, s.since()-rec.Start })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
}

// keys returns the keys of the visitor's latest runs, as they stand in Redis.
func (s *shop) keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.key != "" {
			keys = append(keys, r.key)
		}
	}
	return keys
}

// startOver forgets everything but the streams.
func (s *shop) startOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.records, s.wanted = nil, 0
	clear(s.wishes)
	clear(s.totals)
	s.send(s.all())
}

// subscribe returns a channel that gets everything there is, and then each change. It is closed when the reader is too
// slow. It is nil if there are too many.
func (s *shop) subscribe() chan []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == maxStreams {
		return nil
	}
	stream := make(chan []byte, maxLag)
	s.streams[stream] = true
	stream <- s.all()
	return stream
}

func (s *shop) unsubscribe(stream chan []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
	s.used = time.Now()
}

// publish sends a record and the totals to all streams. s.mu is held.
func (s *shop) publish(rec *record) {
	if len(s.streams) > 0 {
		s.send(s.encode(message{Records: []record{*rec}}))
	}
}

// all returns the message for a new stream. s.mu is held.
func (s *shop) all() []byte {
	m := message{All: true, Records: []record{}}
	for _, r := range s.records {
		m.Records = append(m.Records, *r)
	}
	return s.encode(m)
}

// encode adds the totals. s.mu is held.
func (s *shop) encode(m message) []byte {
	m.Now, m.Wishes, m.Totals = s.since(), s.wanted, s.totals
	data, _ := json.Marshal(m) // numbers and strings always marshal
	return data
}

// send sends to all streams, and drops those whose reader is too slow. s.mu is held.
func (s *shop) send(data []byte) {
	for stream := range s.streams {
		select {
		case stream <- data:
		default:
			delete(s.streams, stream)
			close(stream)
		}
	}
}
