package process

import (
	"os"
	"strings"
	"testing"
)

func TestNamed(t *testing.T) {
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if !Named(strings.TrimSpace(string(own))) {
		t.Errorf("%s does not run, it is said", own)
	}
	if Named("divvy-nobody") {
		t.Error("a program that nobody has runs, it is said")
	}
}
