package arbiter

import (
	"math/rand/v2"
	"testing"
)

// The short way to what a share would get if it wanted all gives what dividing gives.
func TestIfHungry(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	short := 0
	for range 2000 {
		demands := make([]demand, 1+random.IntN(8))
		for i := range demands {
			terms := Terms{
				Policy: Policy(random.IntN(3)), Cores: random.IntN(40), MaxCores: random.IntN(101),
				Weight: random.IntN(4), Offline: random.IntN(4) == 0,
			}
			demands[i] = demandOf(&terms)
			demands[i].wish, demands[i].use = random.Float64(), random.Float64()
		}
		hungry := newIfHungry(demands, nil)
		for i := range demands {
			wished := append([]demand(nil), demands...)
			wished[i].wish, wished[i].use = 1, 1
			want := divide(wished, nil)[i]
			if got := hungry.gets(i); got != want {
				t.Fatalf("%+v: demand %d gets %v, want %v", demands, i, got, want)
			}
			if !demands[i].offline && demands[i].most <= demands[i].cores && hungry.promise <= 1 {
				short++
			}
		}
	}
	if short < 100 {
		t.Errorf("the short way was taken %d times", short)
	}
}
