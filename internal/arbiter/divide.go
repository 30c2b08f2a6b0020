package arbiter

import "slices"

// demand is what a share may get of a GPU's time and how much it wants, as parts of 1.
type demand struct {
	offline bool
	burst   bool
	cores   float64 // guaranteed
	most    float64 // never more than this
	weight  float64
	wish    float64 // how much it would use
	use     float64 // how much it uses; offline shares get what online ones do not use
}

func demandOf(t *Terms) demand {
	c := demand{
		offline: t.Offline, burst: t.Policy == Burst, cores: percent(t.Cores), most: 1,
		weight: float64(max(t.Weight, 1)),
	}
	switch {
	case t.Policy == Fixed:
		c.most = c.cores
	case t.Policy == Burst && t.MaxCores > 0:
		c.most = max(percent(t.MaxCores), c.cores)
	}
	return c
}

func percent(p int) float64 { return float64(min(max(p, 0), 100)) / 100 }

// divide gives each demand its part of the time: online ones first, then offline ones what the online ones do not
// use. Within a class each demand first gets its cores, or its wish if that is less, all scaled alike if they exceed
// 1 together. Then weighted demands share the rest by weight, and bursting ones share what the weighted ones do not
// wish. It uses the memory of got.
func divide(demands []demand, got []float64) []float64 {
	got = slices.Grow(got[:0], len(demands))[:len(demands)]
	clear(got)
	divideClass(demands, false, 1, got)
	left, offline := 1.0, 0
	for i := range demands {
		if demands[i].offline {
			offline++
		} else {
			left -= demands[i].use
		}
	}
	switch offline {
	case 0:
		return got
	case 1:
		// No other offline share competes with it, and it gives way by pulses, without a rate.
		left = 1
	}
	divideClass(demands, true, max(left, 0), got)
	return got
}

func divideClass(demands []demand, offline bool, room float64, got []float64) {
	room = fill(room, demands, got, func(c *demand) (weight, limit float64) {
		if c.offline != offline {
			return 0, 0
		}
		return c.cores, min(c.cores, c.wish, c.most)
	})
	for _, burst := range []bool{false, true} {
		room = fill(room, demands, got, func(c *demand) (weight, limit float64) {
			if c.offline != offline || c.burst != burst {
				return 0, 0
			}
			return c.weight, min(c.wish, c.most)
		})
	}
}

// ifHungry tells what demands would get if they wished for all of the time.
type ifHungry struct {
	demands []demand
	promise float64 // the sum of online shares' cores
	got     []float64
}

func newIfHungry(demands []demand, got []float64) ifHungry {
	h := ifHungry{demands: demands, got: got}
	for i := range demands {
		if !demands[i].offline {
			h.promise += demands[i].cores
		}
	}
	return h
}

func (h *ifHungry) gets(i int) float64 {
	one := &h.demands[i]
	if !one.offline && one.most <= one.cores && h.promise <= 1 {
		return one.most // its guarantee fits and is all that it may have
	}
	kept := *one
	one.wish, one.use = 1, 1
	h.got = divide(h.demands, h.got)
	*one = kept
	return h.got[i]
}

// fill raises what demands got, in proportion to their weights, until each is at its limit or the room is used up, and
// returns the room that is left (progressive filling, which gives weighted max-min fairness).
func fill(room float64, demands []demand, got []float64, of func(*demand) (weight, limit float64)) float64 {
	for range demands {
		sum := 0.0
		for i := range demands {
			if weight, limit := of(&demands[i]); limit > got[i] {
				sum += weight
			}
		}
		if sum <= 0 || room <= 0 {
			break
		}
		level, full := room/sum, false
		for i := range demands {
			weight, limit := of(&demands[i])
			if want := limit - got[i]; want > 0 && weight > 0 && want <= level*weight {
				got[i], room, full = limit, room-want, true
			}
		}
		if full {
			continue
		}
		for i := range demands {
			if weight, limit := of(&demands[i]); limit > got[i] {
				got[i] += level * weight
			}
		}
		return 0
	}
	return max(room, 0)
}

// bases are the rates for the time in which no arbiter lives and nobody knows who wants what: each share gets its
// cores, and weighted shares divide the rest by weight.
func bases(demands []demand) []float64 {
	idle := make([]demand, len(demands))
	for i := range demands {
		idle[i] = demands[i]
		idle[i].wish, idle[i].use = 1, idle[i].cores
		if idle[i].burst {
			idle[i].most = idle[i].cores
		}
		// Online and offline shares are divided among alike: offline ones still give way by pulses.
		idle[i].offline = false
	}
	return divide(idle, nil)
}
