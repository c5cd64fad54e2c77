package canonical

import (
	"bytes"
	"io"
	"mime/multipart"
	"strings"
)

// Parts reads the parts of a multipart body. It is a multipart.Reader that says io.EOF, to be
// compared with ==, only at the closing delimiter. The bare one says so too when the body breaks off
// within a part's header, and a key that stood in the lost part would seem never to have been sent.
//
// An empty line after the body makes the difference: it ends a header that was broken off, so that
// what is missing is the content, which is an error. After the closing delimiter it is epilogue.
func Parts(boundary string, body []byte) *multipart.Reader {
	newline := "\r\n"
	if i := bytes.LastIndexByte(body, '\n'); i == 0 || i > 0 && body[i-1] != '\r' {
		newline = "\n" // the reader wants the closing delimiter to end like the first one
	}
	return multipart.NewReader(io.MultiReader(bytes.NewReader(body), strings.NewReader(newline+newline)), boundary)
}
