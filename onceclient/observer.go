package onceclient

import "time"

// Attempt is one try, for the function of [WithObserver]. It has no key, no URL and no part of a body, and may be
// logged. Err is the base's error: http.Transport's contains the server's address. To tell requests apart, use their
// context.
type Attempt struct {
	Number   int           // from 1
	Status   int           // of the response; 0 without one
	Problem  string        // the type of the response's problem document, if it was read
	Err      error         // why there is no response; nil with one
	Duration time.Duration // of this try
	Pause    time.Duration // before the next one, unless the context is cancelled in it; 0 if there is none
}
