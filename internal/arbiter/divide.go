package arbiter

// claim is what a share may claim of a GPU's time, as parts of 1.
type claim struct {
	offline bool
	burst   bool
	cores   float64 // guaranteed
	most    float64 // never more than this
	weight  float64
	wish    float64 // would use this much
	use     float64 // uses this much; offline shares may have what online ones do not use
}

func claimOf(t *Terms) claim {
	c := claim{
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

// divide grants time to claims: to online ones first, to offline ones what those do not use. Within a class each
// claim first gets its cores as far as it wishes, all scaled alike if they are over 1 together; then the weighted
// ones share the rest by weight, and what they do not wish is shared by those that burst.
func divide(claims []claim) []float64 {
	got := make([]float64, len(claims))
	divideClass(claims, false, 1, got)
	left, offline := 1.0, 0
	for i := range claims {
		if claims[i].offline {
			offline++
		} else {
			left -= claims[i].use
		}
	}
	if offline == 1 {
		// There is nobody to share with, and giving way needs no rate.
		left = 1
	}
	divideClass(claims, true, max(left, 0), got)
	return got
}

func divideClass(claims []claim, offline bool, room float64, got []float64) float64 {
	room = fill(room, claims, got, func(c *claim) (weight, limit float64) {
		if c.offline != offline {
			return 0, 0
		}
		return c.cores, min(c.cores, c.wish, c.most)
	})
	for _, burst := range []bool{false, true} {
		room = fill(room, claims, got, func(c *claim) (weight, limit float64) {
			if c.offline != offline || c.burst != burst {
				return 0, 0
			}
			return c.weight, min(c.wish, c.most)
		})
	}
	return room
}

// divideIfHungry is what claim i would be granted if it wished all it can get.
func divideIfHungry(claims []claim, i int) float64 {
	kept := claims[i]
	claims[i].wish, claims[i].use = 1, 1
	got := divide(claims)[i]
	claims[i] = kept
	return got
}

// fill raises what claims have got by their weights until each is at its limit or the room is used, and returns the
// room that is left: water poured into vessels of different widths and heights.
func fill(room float64, claims []claim, got []float64, of func(*claim) (weight, limit float64)) float64 {
	for range claims {
		sum := 0.0
		for i := range claims {
			if weight, limit := of(&claims[i]); limit > got[i] {
				sum += weight
			}
		}
		if sum <= 0 || room <= 0 {
			break
		}
		level, full := room/sum, false
		for i := range claims {
			weight, limit := of(&claims[i])
			if want := limit - got[i]; want > 0 && weight > 0 && want <= level*weight {
				got[i], room, full = limit, room-want, true
			}
		}
		if full {
			continue
		}
		for i := range claims {
			if weight, limit := of(&claims[i]); limit > got[i] {
				got[i] += level * weight
			}
		}
		return 0
	}
	return max(room, 0)
}

// bases are the rates while no arbiter lives and nobody knows who wants what: the cores of each, and by weight what
// these leave to weighted shares.
func bases(claims []claim) []float64 {
	idle := make([]claim, len(claims))
	for i := range claims {
		idle[i] = claims[i]
		idle[i].wish, idle[i].use = 1, idle[i].cores
		if idle[i].burst {
			idle[i].most = idle[i].cores
		}
		// Weight must count among online and offline alike: offline ones give way by their pulses still.
		idle[i].offline = false
	}
	return divide(idle)
}
