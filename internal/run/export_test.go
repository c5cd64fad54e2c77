package run

// What tests see of the errors for observers.
var (
	ErrLeftOpen = errLeftOpen
)
