package spelling

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"cores", "gpus", "memory", "multiUser", "time", "weight"}
	for name, want := range map[string]string{
		"weigth": "weight", "MEMORY": "memory", "multiuser": "multiUser", "mem": "memory", "core": "cores", "m": "", "": "", "limits": "",
	} {
		if got := Nearest(name, words); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"cores", "cores", 0}, {"coers", "cores", 2}, {"core", "cores", 1}, {"wait", "weight", 3}, {"", "abc", 3}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%s to %s: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
