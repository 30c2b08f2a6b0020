package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Texts come as they are, whatever bytes they have.
func TestExact(t *testing.T) {
	for _, texts := range []Exact{{}, {""}, {"a", "ü", "<&>\u2028"}, {"\xe4", "{", "\xff\xfe\x80"}, {`{"bytes":""}`, "�"}} {
		text, err := json.Marshal(texts)
		if err != nil {
			t.Fatal(err)
		}
		var back Exact
		if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(back, texts) {
			t.Errorf("%q by %s: %q, %v", texts, text, back, err)
		}
	}
}

// What is neither a text nor bytes is an error, and so is what nobody knows.
func TestExactStrict(t *testing.T) {
	for _, text := range []string{`{}`, `"a"`, `[1]`, `[["a"]]`, `[{"bytes":1}]`, `[{"bytes":"%"}]`, `[{"more":"a"}]`} {
		var e Exact
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&e); err == nil {
			t.Errorf("%s is %q", text, e)
		}
	}
}
