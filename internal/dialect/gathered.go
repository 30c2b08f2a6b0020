package dialect

import "github.com/divvy-gpu/divvy/api/v1alpha1"

const (
	// mostWays is how many ways of a waiting claim are counted one by one: those of four requests for a part of a GPU. A
	// claim can have 256, of any class, and is kept for as long as it waits.
	mostWays = 32
	// mostClasses is how many classes a claim with more ways may name.
	mostClasses = 8
)

// gathered bounds what is kept of a claim. Of a claim with too many ways, those of one class become one, which is never
// less than they are; a claim that names too many classes takes an amount that cannot be told.
func gathered(asked [][]way) [][]way {
	count := 0
	for _, ways := range asked {
		count += len(ways)
	}
	if count <= mostWays {
		return asked
	}
	sum := make(map[string]way)
	for _, ways := range asked {
		most := make(map[string]way)
		for _, w := range ways {
			if before, ok := most[w.class]; ok {
				w = w.covering(before, max(w.count, before.count))
			}
			most[w.class] = w
		}
		for class, w := range most {
			if before, ok := sum[class]; ok {
				w = w.covering(before, w.count+before.count)
			}
			sum[class] = w
		}
		if len(sum) > mostClasses {
			return [][]way{{{class: v1alpha1.ClassShare, count: 1, all: true, noCores: true}}}
		}
	}
	var all [][]way
	for _, class := range sortedKeys(sum) {
		all = append(all, []way{sum[class]})
	}
	return all
}

// covering is a way of so many GPUs that is no less than two of one class.
func (w way) covering(other way, count uint64) way {
	both := way{class: w.class, count: count, noCores: w.noCores, all: w.all || other.all, cores: max(w.cores, other.cores)}
	if w.noCores != other.noCores {
		both.noCores, both.cores = false, v1alpha1.MaxCores
	}
	if w.memory > 0 && other.memory > 0 {
		both.memory = max(w.memory, other.memory)
	}
	if w.least == other.least && w.memory == other.memory {
		both.least = w.least
	}
	return both
}
