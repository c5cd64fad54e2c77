package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/internal/operate"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const (
	maxListed = 200
	listStep  = 1000 // keys that a server looks at in one step
)

// stored is a response of the list.
type stored struct {
	Key    string
	Status int
}

// canList reports whether the page has the form that lists.
func (p *page) canList() bool { return p.once != nil && !p.locker.IsNone() }

// list shows the responses in Redis that have one of the statuses.
func (p *page) list(r *http.Request, entered string) view {
	var statuses operate.Statuses
	if err := statuses.Set(entered); err != nil {
		return view{status: http.StatusUnprocessableEntity, Problem: "Enter a status such as 503, or a range such as 500-599."}
	}
	entry := Entry{Action: List, Key: entered}
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Problem: notAudited}
	}
	v := view{status: http.StatusOK, Statuses: entered, IsList: true}
	err := p.find(r.Context(), statuses, &v)
	if err != nil {
		v = failed("", err)
	}
	entry.Done, entry.Err = true, err
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Problem: notRecorded}
	}
	return v
}

// find adds the responses to v.
func (p *page) find(ctx context.Context, statuses operate.Statuses, v *view) error {
	seen := map[string]bool{} // a scan may find a key twice
	for found, err := range p.locker.Scan(ctx, listStep) {
		if err != nil {
			return err
		}
		for _, info := range found.Infos {
			if info.State != lock.Settled || seen[info.Key] {
				continue
			}
			seen[info.Key] = true
			i, err := p.once.Inspect(ctx, info.Key)
			switch {
			case errors.Is(err, middleware.ErrUnreadable):
				v.Unreadable++
			case errors.Is(err, lock.ErrForeign):
			case err != nil:
				return err
			case statuses.Has(i) && len(v.Listed) == maxListed:
				v.More = true
				return nil
			case statuses.Has(i):
				v.Listed = append(v.Listed, stored{info.Key, i.Stored.Status})
			}
		}
	}
	return nil
}
