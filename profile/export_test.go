package profile

import (
	"net/http"

	"github.com/onceguard/onceguard/middleware"
)

// Answers returns the table: by problem, the status, type and code in ACP, UCP and Stripe's API.
func Answers() map[string][3]Answer {
	m := map[string][3]Answer{}
	for problem, r := range table {
		m[problem] = [3]Answer{exported(r.acp), exported(r.ucp), exported(r.stripe)}
	}
	return m
}

// Answer is an answer with exported fields.
type Answer struct {
	Status     int
	Kind, Code string
}

func exported(a answer) Answer { return Answer{a.status, a.kind, a.code} }

// Refuse writes a problem as p does.
func Refuse(p Profile, w http.ResponseWriter, r *http.Request, problem middleware.Problem) {
	p.refuse(w, r, problem)
}
