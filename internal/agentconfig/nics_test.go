package agentconfig

import (
	"reflect"
	"strings"
	"testing"
)

func TestNICs(t *testing.T) {
	usual := func(change func(*NICs)) NICs {
		n := NICs{Slots: 64, Handles: 64, Objects: 65536}
		change(&n)
		return n
	}
	for text, want := range map[string]NICs{
		"":                                  usual(func(*NICs) {}),
		"nics: auto":                        usual(func(*NICs) {}),
		"nics: off":                         usual(func(n *NICs) { n.Off = true }),
		`nics: "off"`:                       usual(func(n *NICs) { n.Off = true }),
		"nics: [mlx5_1, \"0000:81:00.1\"]":  usual(func(n *NICs) { n.Names = []string{"mlx5_1", "0000:81:00.1"} }),
		"nicShares: {slots: 2, handles: 1}": usual(func(n *NICs) { n.Slots, n.Handles = 2, 1 }),
		"nicShares: {objects: 9}":           usual(func(n *NICs) { n.Objects = 9 }),
	} {
		c, err := Parse("agent.yaml", []byte(head+text), nil)
		if err != nil || !reflect.DeepEqual(c.NICs(), want) {
			t.Errorf("%q: %+v, %v", text, c.NICs(), err)
		}
	}
	for text, want := range map[string]string{
		"nics: on":                          "nics: must be off, auto or a list of cards",
		"nics: false":                       "nics: must be off, auto or a list of cards",
		"nics: []":                          "nics: must be off, auto or a list of cards",
		"nics: {mlx5_0: true}":              "nics: must be off, auto or a list of cards",
		"nics: [\"a b\"]":                   `nics: "a b" is not the name`,
		"nics: [\"../x\"]":                  `nics: "../x" is not the name`,
		"nics: [\"a\\nb\"]":                 `nics: "a\nb" is not the name`,
		"nics: [[mlx5_0]]":                  `nics: "" is not the name`,
		"nics: [mlx5_0, mlx5_0]":            "nics: names mlx5_0 twice",
		"nicShares: {slots: 0}":             "nicShares.slots:",
		"nicShares: {handles: many}":        "nicShares.handles:",
		"nicShares: {objects: 99999999999}": "nicShares.objects:",
		"nicShares: {bandwidth: 1}":         "nicShares.bandwidth: unknown field; known here: handles, objects, slots",
		"nicShares: 5":                      "nicShares: must be a mapping",
	} {
		if _, err := Parse("agent.yaml", []byte(head+text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := (*Config)(nil).NICs(); got.Off || got.Slots != 64 {
		t.Errorf("without a configuration: %+v", got)
	}
}
