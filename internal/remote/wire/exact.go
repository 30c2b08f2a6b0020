package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// ExactText is a text of a command, such as the name of a file, which Linux lets have any bytes. JSON has texts of UTF-8 alone,
// and Go's would put other letters in the place of what is none: another command would run.
type ExactText string

// Exact are such texts.
type Exact []string

// other is a text that is no UTF-8. JSON has bytes in base64.
type other struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements [json.Marshaler].
func (e ExactText) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(e)) {
		return json.Marshal(string(e)) //nolint:wrapcheck // the encoder's own
	}
	return json.Marshal(other{[]byte(e)}) //nolint:wrapcheck // the encoder's own
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *ExactText) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(text, []byte("{")) {
		return json.Unmarshal(text, (*string)(e)) //nolint:wrapcheck // the decoder's own
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var o other
	if err := decoder.Decode(&o); err != nil {
		return fmt.Errorf("a text of a command: %w", err)
	}
	*e = ExactText(o.Bytes)
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (e Exact) MarshalJSON() ([]byte, error) {
	list := make([]ExactText, len(e))
	for i, text := range e {
		list[i] = ExactText(text)
	}
	return json.Marshal(list) //nolint:wrapcheck // the encoder's own
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Exact) UnmarshalJSON(text []byte) error {
	var list []ExactText
	if err := json.Unmarshal(text, &list); err != nil {
		return err //nolint:wrapcheck // the decoder's own
	}
	*e = make(Exact, len(list))
	for i, one := range list {
		(*e)[i] = string(one)
	}
	return nil
}
