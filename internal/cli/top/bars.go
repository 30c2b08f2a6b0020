package top

import (
	"math"
	"strings"
)

// part is what one share takes of a bar: to how much of the whole it is entitled, and how much it uses, 0 to 1 each.
type part struct {
	entitled, used float64
}

// Characters of bars.
const (
	usedCell     = '█'
	entitledCell = '░'
	freeCell     = '·'
	moreCell     = '+'
)

// bar draws parts one after another in so many columns: of each what it uses, then the rest of what it is entitled to. A
// part that uses more than it is entitled to ends with a plus. Parts that add up to more than the whole are drawn smaller.
// The numbers are those of the parts by column, -1 where there is none.
func bar(parts []part, width int) (cells []rune, owners []int) {
	whole := 1.0
	sum := 0.0
	for _, p := range parts {
		sum += p.entitled
	}
	whole = max(whole, sum)
	cells, owners = []rune(strings.Repeat(string(freeCell), max(0, width))), make([]int, max(0, width))
	for i := range owners {
		owners[i] = -1
	}
	end := 0.0
	for i, p := range parts {
		from := column(end/whole, width)
		end += p.entitled
		to := column(end/whole, width)
		used := from + column(min(p.used, p.entitled)/whole, width)
		if p.used > 0 {
			used = max(used, from+1) // whoever uses a little is seen, where there is room
		}
		for at := from; at < to; at++ {
			owners[at], cells[at] = i, entitledCell
			if at < used {
				cells[at] = usedCell
			}
		}
		if p.used > p.entitled*1.005 && to > from {
			cells[to-1] = moreCell
		}
	}
	return cells, owners
}

func column(fraction float64, width int) int {
	return min(max(0, int(math.Round(fraction*float64(width)))), max(0, width))
}

// levels are the heights of a sparkline.
var levels = []rune("▁▂▃▄▅▆▇█")

// spark draws the last figures, of percent, in so many columns at most.
func spark(figures []float64, width int) string {
	figures = figures[max(0, len(figures)-max(0, width)):]
	var w strings.Builder
	for _, f := range figures {
		at := int(f / 100 * float64(len(levels)))
		w.WriteRune(levels[min(max(0, at), len(levels)-1)])
	}
	return w.String()
}
