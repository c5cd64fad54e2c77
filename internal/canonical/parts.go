package canonical

import (
	"bytes"
	"io"
	"mime/multipart"
	"strings"
)

// Parts returns a reader of the parts of a multipart body. It returns io.EOF itself, unwrapped, only at the closing
// delimiter. A plain multipart.Reader also returns it when the body ends within a part's header: a request whose key
// was in that part would count as one without a key.
//
// Parts appends an empty line to the body. The line ends a truncated header, so that the reader misses the content,
// which is an error. After a closing delimiter the line is epilogue.
func Parts(boundary string, body []byte) *multipart.Reader {
	newline := "\r\n"
	if i := bytes.LastIndexByte(body, '\n'); i == 0 || i > 0 && body[i-1] != '\r' {
		newline = "\n" // multipart.Reader expects the closing delimiter to end like the first one
	}
	return multipart.NewReader(io.MultiReader(bytes.NewReader(body), strings.NewReader(newline+newline)), boundary)
}
