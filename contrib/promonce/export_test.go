package promonce

// CheckedExemplar is checkedExemplar.
var CheckedExemplar = checkedExemplar
