package once

import (
	"errors"
	"slices"
)

// foreign is an error that Do has not made itself: what f has returned, the cause of a context, an error of Redis or of a
// journal. Do lets out none of them but by foreignOf, so that two rules hold:
//
//   - Only the value that f itself returns carries a mark, and only to the Do that has called f. Nothing that this
//     package returns, puts into a Refused or an Event, or gives to a context carries one. Resolve and the Event, which
//     hide nothing else, use unmark.
//   - Only Do's own answer is a *Refused, a *StoredError or an error that is a Refused's Reason. So a consumer that
//     acknowledges a message because of Do's answer never acts on that of an inner Do, which its function has returned.
//
// The text stays, and so does everything else that errors.Is and errors.As find in the error.
type foreign struct {
	err         error
	hidesAnswer bool // and not only the marks
}

// foreignOf returns err without a mark around it. If there is more in err to be hidden, it returns a foreign.
func foreignOf(err error) error {
	for {
		m, ok := err.(*mark)
		if !ok {
			break
		}
		err = m.err
	}
	if err == nil || !isAnswer(err) {
		return unmark(err)
	}
	return &foreign{err, true}
}

// unmark returns err, without the marks in it.
func unmark(err error) error {
	if knowledgeOf(err) == noMark {
		return err
	}
	return &foreign{err, false}
}

func (f *foreign) Error() string { return f.err.Error() }

func (f *foreign) Is(target error) bool {
	return !(f.hidesAnswer && slices.Contains(answers, target)) && errors.Is(f.err, target)
}

func (f *foreign) As(target any) bool {
	switch target.(type) {
	case **mark:
		return false
	case **Refused, **StoredError:
		return !f.hidesAnswer && errors.As(f.err, target)
	}
	return errors.As(f.err, target)
}

// answers are the Reasons of a Refused.
var answers = []error{
	ErrInFlight, ErrFailed, ErrUnavailable, ErrNotKnownYet, ErrReused, ErrNotStored, ErrOutcomeUnknown, ErrUnreadable, ErrInvalidKey,
}

// isAnswer reports whether err would be taken for an answer of Do.
func isAnswer(err error) bool {
	var refused *Refused
	var stored *StoredError
	is := func(answer error) bool { return errors.Is(err, answer) }
	return errors.As(err, &refused) || errors.As(err, &stored) || slices.ContainsFunc(answers, is)
}
