package check_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

const scopeOfUser = "scope/user scope/user-runs scope/user-in-flight"

// A second user who can do nothing shows nothing. fault: a refusal of the user, or a login page, passes for a response of their own.
func TestSecondUserWithoutRights(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"sent to a login": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, fmt.Sprint("/login?token=", time.Now().UnixNano()), http.StatusFound)
		},
		"a login page": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprint(w, "<form>", time.Now().UnixNano())
		},
	} {
		for _, isCounted := range []bool{true, false} {
			if name == "a login page" && !isCounted {
				continue // it looks like a response
			}
			t.Run(fmt.Sprint(name, isCounted), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "")
				s.main.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization") == "bob" {
						refuse(w, r)
						return
					}
					s.ServeHTTP(w, r)
				})
				results := askShop(t, s, scopeOfUser, func(c *check.Config) {
					if !isCounted {
						c.EffectsURL = nil
					}
				})
				wantVerdicts(t, results, nil, strings.Fields(scopeOfUser))
			})
		}
	}
}

// -effects may count the first user's orders alone: the second user's response shows that they can do something.
func TestEffectsOfFirstUser(t *testing.T) {
	t.Parallel()
	wantVerdicts(t, askShop(t, newShop(t, "bob's effects are not counted"), scopeOfUser, nothing), nil, nil)
}

// A second user who gets no order of their own, whatever the key, is not refused for the key. fault: an order number that is unique
// among all users fails the checks of the scope.
func TestSecondUserWithEqualOrder(t *testing.T) {
	t.Parallel()
	unique := newShop(t, "")
	unique.main.Config.Handler = newOrders().guard(unique)
	wantVerdicts(t, askShop(t, unique, scopeOfUser, nothing), nil, []string{"scope/user-runs", "scope/user-in-flight"})
}

// A service that makes one order of equal ones runs no second one, whatever the key. fault: it is told to drop orders.
func TestEqualOrdersAreOne(t *testing.T) {
	t.Parallel()
	const ids = "once/repeat once/keys-differ key/length-distinct key/value-case "
	results := askShop(t, newShop(t, "equal orders are one"), ids+scopeOfUser, nothing)
	wantVerdicts(t, results, nil, strings.Fields("once/keys-differ key/length-distinct key/value-case "+scopeOfUser))
}

// What is refused until a key has come to rest is asked after that. fault: the stored response is not there yet, and that passes
// for a right refusal.
func TestLockedForAMoment(t *testing.T) {
	t.Parallel()
	for status, isAwaited := range map[string]bool{"423": true, "425": true, "500": false} {
		results := askShop(t, newShop(t, fault("locked "+status)), "scope/user scope/route", nothing)
		if both := []string{"scope/user", "scope/route"}; isAwaited {
			wantVerdicts(t, results, both, nil)
		} else {
			wantVerdicts(t, results, nil, both)
		}
	}
}

// Another route that takes no such request shows nothing. fault: 404 passes for a refusal of the key.
func TestOtherRouteWithoutRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	results := askShop(t, s, "scope/route", func(c *check.Config) { c.OtherURL = s.url(t, "/nowhere") })
	wantVerdicts(t, results, nil, []string{"scope/route"})
}
