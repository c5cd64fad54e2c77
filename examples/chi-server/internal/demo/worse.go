package demo

import "net/http"

// startOver forgets what the visitor has done.
func (d *Demo) startOver(w http.ResponseWriter, r *http.Request) {
	if s := d.shop(w, r); s != nil {
		s.startOver()
		w.WriteHeader(http.StatusNoContent)
	}
}

// emptyRedis deletes the visitor's keys: to their requests, Redis is as empty as after a FLUSHALL or a restart without
// persistence. Those of others stay.
func (d *Demo) emptyRedis(w http.ResponseWriter, r *http.Request) {
	s := d.shop(w, r)
	if s == nil {
		return
	}
	if keys := s.keys(); len(keys) > 0 {
		if err := d.clients[0].Del(r.Context(), keys...).Err(); err != nil {
			http.Error(w, "Redis does not answer.", http.StatusServiceUnavailable)
			return
		}
	}
	s.emptied()
	w.WriteHeader(http.StatusNoContent)
}
