package cli

import (
	"testing"
)

func TestRemovableSaysHowToGoOn(t *testing.T) {
	for _, test := range []struct {
		shares []inTheWay
		want   string
	}{
		{nil, ""},
		{[]inTheWay{{name: "ada/train"}}, "1 share runs (ada/train): end them with `divvy stop ada/train`, as root or as their user, or wait for their end; then remove Divvy again"},
		{[]inTheWay{{name: "ben/mine", own: "`divvy stop mine --simgpu t4` as ben"}}, "1 share runs (ben/mine): end them with `divvy stop mine --simgpu t4` as ben, or wait for their end; then remove Divvy again"},
		{[]inTheWay{{name: "a/1"}, {name: "a/2"}, {name: "b/1"}, {name: "b/2"}, {name: "b/3"}}, "5 shares run (a/1, a/2, b/1, b/2 and others): end them with `divvy stop a/1`, as root or as their user, or wait for their end; then remove Divvy again"},
	} {
		got := ""
		if err := removable(test.shares); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%v: %q, want %q", test.shares, got, test.want)
		}
	}
}
