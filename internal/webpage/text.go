package webpage

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/plaintext"
)

const (
	// longestName is how many letters of a name are shown, and longestNote of a sentence.
	longestName = 120
	longestNote = 600
)

func name(text string) string { return plaintext.Line(text, longestName) }

func note(text string) string { return plaintext.Line(text, longestNote) }

// size writes an amount of memory with about three digits.
func size(n uint64) string {
	for _, unit := range []struct {
		name  string
		bytes float64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if v := float64(n) / unit.bytes; v >= 1 {
			return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + unit.name
		}
	}
	return strconv.FormatUint(n, 10)
}

// dash stands where something is not known.
const dash = "–"

func sizeIfKnown(n *uint64) string {
	if n == nil {
		return dash
	}
	return size(*n)
}

func orDash(text string) string {
	if text == "" {
		return dash
	}
	return text
}

// moment is a time as people read it, and exact as programs do.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

func exact(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span writes a length of time in the largest unit of which it has at least two.
func span(d time.Duration) string {
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d >= 2*unit.length {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(max(0, d)/time.Millisecond), 10) + "ms"
}

// count writes a number with its noun.
func count(n any, one string) string {
	text := fmt.Sprint(n)
	if text == "1" {
		return text + " " + one
	}
	return text + " " + one + "s"
}

// percent is a part of a whole, 0 to 100 and no more.
func percent(part, whole uint64) int {
	if whole == 0 {
		return 0
	}
	return int(min(100, float64(part)/float64(whole)*100+0.5))
}

// whole writes a number without its fraction.
func whole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }
