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

// A name of a directory, too.
func TestExactPath(t *testing.T) {
	there := Directory{Path: "/\xe4/{", Proof: "p", Source: "files:/\xff", Type: "nfs4", Inode: 1}
	text, err := json.Marshal(there)
	if err != nil {
		t.Fatal(err)
	}
	var back Directory
	if err := json.Unmarshal(text, &back); err != nil || back != there {
		t.Errorf("%#v by %s: %#v, %v", there, text, back, err)
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
