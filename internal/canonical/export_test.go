package canonical

// Stream returns the bytes that SumBody hashes.
func Stream(contentType string, body []byte) []byte {
	head, rest := appendBody(nil, contentType, body)
	return append(head, rest...)
}
