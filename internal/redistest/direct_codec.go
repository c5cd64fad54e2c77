package redistest

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// appendCommand appends the RESP of a command.
func appendCommand(b []byte, args []any) ([]byte, error) {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		var text []byte
		switch arg := arg.(type) {
		case string:
			text = []byte(arg)
		case []byte:
			text = arg
		case int:
			text = strconv.AppendInt(nil, int64(arg), 10)
		case int64:
			text = strconv.AppendInt(nil, arg, 10)
		case encoding.BinaryMarshaler:
			var err error
			if text, err = arg.MarshalBinary(); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("redistest: Direct cannot send a %T", arg)
		}
		b = append(fmt.Appendf(b, "$%d\r\n%s", len(text), text), "\r\n"...)
	}
	return b, nil
}

// setReply sets the value or the error of a command from its reply.
func setReply(cmd redis.Cmder, raw []byte) {
	if cmd, ok := cmd.(interface{ SetVal([]byte) }); ok {
		cmd.SetVal(raw)
		return
	}
	v, _, err := decode(raw)
	if err != nil {
		cmd.SetErr(err)
		return
	}
	switch c := cmd.(type) {
	case interface{ SetVal(any) }:
		c.SetVal(v)
	case interface{ SetVal(string) }:
		setVal(cmd, c.SetVal, v)
	case interface{ SetVal(int64) }:
		setVal(cmd, c.SetVal, v)
	case *redis.BoolCmd:
		c.SetVal(v == int64(1))
	case *redis.DurationCmd: // PTTL
		if n, _ := v.(int64); n < 0 { // go-redis does not convert -1 and -2
			c.SetVal(time.Duration(n))
		} else {
			c.SetVal(time.Duration(n) * time.Millisecond)
		}
	case *redis.StringSliceCmd:
		c.SetVal(texts(v))
	case *redis.MapStringStringCmd:
		pairs := map[string]string{}
		for pair := range slices.Chunk(texts(v), 2) {
			pairs[pair[0]] = pair[1]
		}
		c.SetVal(pairs)
	default:
		cmd.SetErr(fmt.Errorf("redistest: Direct does not support a %T", cmd))
	}
}

// setVal sets the value of cmd to v, or its error if v has the wrong type.
func setVal[V any](cmd redis.Cmder, set func(V), v any) {
	if v, ok := v.(V); ok {
		set(v)
		return
	}
	cmd.SetErr(fmt.Errorf("redistest: a %T has the reply %v", cmd, v))
}

func texts(v any) (all []string) {
	list, _ := v.([]any)
	for _, v := range list {
		text, _ := v.(string)
		all = append(all, text)
	}
	return all
}

// decode returns the first value of a complete RESP2 reply, as go-redis does, and the bytes after it. The error of a
// null is redis.Nil.
func decode(raw []byte) (v any, rest []byte, err error) {
	line, rest, _ := bytes.Cut(raw, []byte("\r\n"))
	kind, text := line[0], string(line[1:])
	if kind == '+' {
		return text, rest, nil
	}
	if kind == '-' {
		return nil, rest, serverError(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, rest, err
	case kind == ':':
		return n, rest, nil
	case n < 0:
		return nil, rest, redis.Nil
	case kind == '$':
		return string(rest[:n]), rest[n+2:], nil
	case kind != '*':
		return nil, rest, fmt.Errorf("%w: type %q", errProtocol, kind)
	}
	all := make([]any, n)
	for i := range all {
		if all[i], rest, err = decode(rest); err != nil && !errors.Is(err, redis.Nil) {
			return nil, rest, err
		}
	}
	return all, rest, nil
}

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError marks it as a redis.Error.
func (serverError) RedisError() {}
