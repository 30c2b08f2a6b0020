package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Exact are texts of a command, such as names of files, which Linux lets have any bytes. JSON has texts of UTF-8 alone, and
// Go's would put other letters in the place of what is none: another command would run.
type Exact []string

// other is a text that is no UTF-8. JSON has bytes in base64.
type other struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements [json.Marshaler].
func (e Exact) MarshalJSON() ([]byte, error) {
	list := make([]any, len(e))
	for i, text := range e {
		if list[i] = text; !utf8.ValidString(text) {
			list[i] = other{[]byte(text)}
		}
	}
	return json.Marshal(list) //nolint:wrapcheck // the encoder's own
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Exact) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err //nolint:wrapcheck // the decoder's own
	}
	*e = make(Exact, len(list))
	for i, one := range list {
		if !bytes.HasPrefix(one, []byte("{")) {
			if err := json.Unmarshal(one, &(*e)[i]); err != nil {
				return err //nolint:wrapcheck // the decoder's own
			}
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(one))
		decoder.DisallowUnknownFields()
		var o other
		if err := decoder.Decode(&o); err != nil {
			return fmt.Errorf("a text of a command: %w", err)
		}
		(*e)[i] = string(o.Bytes)
	}
	return nil
}
