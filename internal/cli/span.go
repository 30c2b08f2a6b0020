package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// span writes a time with its two largest units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d >= day:
		return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%d s", d/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", math.Floor(10*d.Seconds())/10)
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

// nanoseconds is span of a figure that somebody else tells.
func nanoseconds(ns uint64) string { return span(time.Duration(min(ns, math.MaxInt64))) }

// part is how much of a span some time is, in percent, and no more than all of it.
func part(ns uint64, of time.Duration) string {
	if of <= 0 {
		return "0%"
	}
	return tenth(min(100*float64(ns)/float64(of), 100))
}

// partOf is a time and how much of a span it is.
func partOf(ns uint64, of time.Duration) string {
	return fmt.Sprintf("%s (%s)", nanoseconds(ns), part(ns, of))
}

// tenth writes a percentage: whole from 10 on, below with a tenth.
func tenth(percent float64) string {
	if percent >= 10 || percent == 0 {
		return strconv.FormatFloat(percent, 'f', 0, 64) + "%"
	}
	return strconv.FormatFloat(percent, 'f', 1, 64) + "%"
}
