package cli

import (
	"testing"
)

func TestRemovableSaysHowToGoOn(t *testing.T) {
	for _, test := range []struct {
		shares []string
		want   string
	}{
		{nil, ""},
		{[]string{"ada/train"}, "1 share runs (ada/train): end them with `divvy stop ada/train`, as root or as their user, or wait for their end; then remove Divvy again"},
		{[]string{"a/1", "a/2", "b/1", "b/2", "b/3"}, "5 shares run (a/1, a/2, b/1, b/2 and others): end them with `divvy stop a/1`, as root or as their user, or wait for their end; then remove Divvy again"},
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
