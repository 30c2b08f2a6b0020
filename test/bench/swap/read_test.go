package main

import (
	"errors"
	"slices"
	"testing"
)

func TestExperiments(t *testing.T) {
	text := "18 GiB swept twice: GiB out                       20.40      20.00  +1.99 %\n" +
		"2 x 15.3 GB, turns of 15 s: seconds             1673.69    1668.00  +0.34 %\nand no experiment\n"
	want := []experiment{{"18 GiB swept twice: GiB out", 20.40, 20}, {"2 x 15.3 GB, turns of 15 s: seconds", 1673.69, 1668}}
	if got := experiments([]byte(text)); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPlayersAnswers(t *testing.T) {
	p := &player{executed: map[string]uint64{}, reached: map[string]int{}, pages: map[string]pages{}}
	for _, c := range []struct {
		words []string
		last  bool
		err   error
	}{
		{[]string{"stamp", "a", "1", "300"}, false, nil},
		{[]string{"time", "400", "a", "200", "b", "100"}, true, nil},
		{[]string{"pages", "a", "1", "2", "3", "4", "5"}, true, nil},
		{[]string{"error", "no", "such", "client"}, true, errPlayed},
		{nil, false, errPlayed},
	} {
		if last, err := p.take(c.words); last != c.last || !errors.Is(err, c.err) {
			t.Errorf("%v: %v, %v", c.words, last, err)
		}
	}
	if p.now != 400 || p.executed["b"] != 100 || p.reached["a"] != 1 || p.pages["a"] != (pages{1, 2, 3, 4, 5}) {
		t.Errorf("%+v", p)
	}
}
