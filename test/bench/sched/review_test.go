package main

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	row := percentile("a", 3, took, "why")
	if row.Value != 198 || row.Worst != 200 || row.Runs != 200 || row.Reached() || !strings.Contains(row.Note, "of 200, whose median is 101.00 ms: why") {
		t.Errorf("%+v", row)
	}
	if bare := percentile("a", 0, took, ""); bare.Goal != nil || !bare.Reached() {
		t.Errorf("a row without a goal: %+v", bare)
	}
}
