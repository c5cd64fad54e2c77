package demo

import (
	"fmt"
	"net/http"
	"time"
)

const (
	writeTime  = 5 * time.Second  // for one event: a reader who takes longer is dropped
	streamTime = 10 * time.Minute // after which a browser has to connect again
)

// Events sends the visitor's events as they happen: first one with all that there is, then one for each change of a
// request. The format is that of server-sent events (HTML Living Standard, section 9.2).
//
// It must be outside of middlewares that limit the time of a request or compress responses, since those hold back what
// must leave at once. The server's own timeouts do not end a stream.
func (d *Demo) Events(w http.ResponseWriter, r *http.Request) {
	shop := d.shop(w, r)
	if shop == nil {
		return
	}
	stream := shop.subscribe()
	if stream == nil {
		http.Error(w, "The page is open too often.", http.StatusTooManyRequests)
		return
	}
	defer shop.unsubscribe(stream)

	out := http.NewResponseController(w)
	// When ReadTimeout is over, the server would take the client to have left.
	if err := out.SetReadDeadline(time.Time{}); err != nil {
		http.Error(w, "Events cannot be sent through this server.", http.StatusInternalServerError)
		return
	}
	send := func(format string, args ...any) bool {
		if err := out.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return false
		}
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && out.Flush() == nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // for nginx

	heartbeat := time.NewTicker(d.cfg.Heartbeat)
	defer heartbeat.Stop()
	end := time.NewTimer(streamTime)
	defer end.Stop()
	for alive := true; alive; {
		select {
		case data, ok := <-stream:
			alive = ok && send("event: shop\ndata: %s\n\n", data)
		case <-heartbeat.C:
			alive = send(": still here\n\n")
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-d.closing:
			return
		}
	}
}
