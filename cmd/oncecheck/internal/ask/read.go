package ask

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Limits of one response: its head, with all interim responses before it, and its body.
const maxHead, maxBody = 1 << 20, 64 << 20

// readResponse reads the final response, and no more of it than the limits allow.
func readResponse(from io.Reader, method string) (*Response, error) {
	limit := &io.LimitedReader{R: from, N: maxHead}
	buffered := bufio.NewReader(limit)
	for {
		resp, err := http.ReadResponse(buffered, &http.Request{Method: method})
		switch {
		case err != nil && limit.N <= 0:
			return nil, errors.New("the response has a head of more than 1 MiB")
		case err != nil:
			return nil, fmt.Errorf("the connection ended before a response: %w", err)
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			limit.N = 2 * maxBody // with what surrounds the chunks
			return readBody(resp)
		}
	}
}

func readBody(resp *http.Response) (*Response, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the response broke off in its body: %w", err)
	case len(body) > maxBody:
		return nil, errors.New("the response has more than 64 MiB")
	}
	return &Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}
