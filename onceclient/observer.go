package onceclient

import "time"

// Attempt is one try, as [WithObserver]'s function gets it. It has neither the key nor the URL nor anything of a body, so
// it may be logged; Err is the base's, and http.Transport's contains the server's address. Tell requests apart by what is
// in their context.
type Attempt struct {
	Number   int           // from 1
	Method   string        // of the request
	Status   int           // of the response; 0 without one
	Problem  string        // the type of the response's problem document, if it was read: to repeat or to decide about it
	Err      error         // why there is no response; nil with one
	Duration time.Duration // of this try
	Elapsed  time.Duration // since the first try began
	Again    bool          // whether there will be another one, unless the context is cancelled in the pause
	Pause    time.Duration // before the next one; 0 if Again is false
}
