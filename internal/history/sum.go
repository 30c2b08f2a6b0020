package history

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Column is what sums are made by.
type Column string

// The columns.
const (
	ByDay     Column = "day"
	ByUser    Column = "user"
	ByShare   Column = "share"
	ByCommand Column = "command"
	ByGPU     Column = "gpu"
	ByNode    Column = "node"
)

// Columns are all, in the order in which rows have them.
var Columns = []Column{ByDay, ByNode, ByUser, ByShare, ByCommand, ByGPU}

// Row is the sum of some records. Of the columns it has those by which it was made.
type Row struct {
	Day     string `json:"day,omitempty"`
	Node    string `json:"node,omitempty"`
	User    string `json:"user,omitempty"`
	Share   string `json:"share,omitempty"`
	Command string `json:"command,omitempty"`
	GPU     string `json:"gpu,omitempty"`
	// Shares is how many there were, one for each GPU of a share, and Running how many of them had not ended.
	Shares  uint64 `json:"shares"`
	Running uint64 `json:"running"`
	// Wall is their time together, in ns.
	Wall uint64 `json:"wallNanoseconds"`
	Figures
	// Granted is the largest limit of memory, and Peak the most that one of them used.
	Granted uint64 `json:"granted"`
	Peak    uint64 `json:"peak"`
	// Ended says how the last of them ended, by time.
	Ended string `json:"ended,omitempty"`
}

// Cell is what a row has in a column.
func (r *Row) Cell(c Column) string {
	switch c {
	case ByDay:
		return r.Day
	case ByNode:
		return r.Node
	case ByUser:
		return r.User
	case ByShare:
		return r.Share
	case ByCommand:
		return r.Command
	}
	return r.GPU
}

// Sum adds up records by columns, days as a place has them. Rows are in order; records of
// nodes are left out.
func Sum(records []Record, by []Column, place *time.Location) []Row {
	at := map[Row]int{}
	var rows []Row
	var seen []map[Key]bool // whether each share of a row has ended
	var last []time.Time    // when the one ended whose end a row tells
	for i := range records {
		r := &records[i]
		if r.Kind == KindNode {
			continue
		}
		key := keyOf(r, by, place)
		n, ok := at[key]
		if !ok {
			n = len(rows)
			at[key] = n
			rows, seen, last = append(rows, key), append(seen, map[Key]bool{}), append(last, time.Time{})
		}
		rows[n].add(r)
		// Records of several agents, and of what one of them learnt late, are not in the order of time.
		if r.Ended != "" && !r.At.Before(last[n]) {
			rows[n].Ended, last[n] = r.Ended, r.At
		}
		if r.Kind != KindMany {
			ended, known := seen[n][r.Key()]
			seen[n][r.Key()] = known && ended || r.Kind == KindEnd
		}
	}
	for n := range rows {
		rows[n].Shares += uint64(len(seen[n]))
		for _, ended := range seen[n] {
			if !ended {
				rows[n].Running++
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		for _, c := range Columns {
			if d := cmp.Compare(a.Cell(c), b.Cell(c)); d != 0 {
				return d
			}
		}
		return 0
	})
	return rows
}

// keyOf is a row with nothing but what names it.
func keyOf(r *Record, by []Column, place *time.Location) (key Row) {
	for _, c := range by {
		switch c {
		case ByDay:
			key.Day = r.From.In(place).Format(time.DateOnly)
		case ByNode:
			key.Node = r.Node
		case ByUser:
			key.User = r.Owner()
		case ByShare:
			key.Share = r.Name
			if r.Kind == KindMany {
				key.Share = manyName
			}
		case ByCommand:
			key.Command = Workload(r.Command)
		case ByGPU:
			key.GPU = fmt.Sprintf("%d %s", r.GPU, r.UUID)
		}
	}
	return key
}

// manyName stands for the names of shares that are summed up.
const manyName = "(many)"

// Owner is whose share it was: the user, in a cluster the namespace.
func (r *Record) Owner() string {
	if r.Namespace != "" {
		return "namespace " + r.Namespace
	}
	return r.User
}

func (r *Row) add(o *Record) {
	r.Add(o.Figures)
	r.Wall += o.Wall()
	r.Shares += o.Shares
	r.Granted, r.Peak = max(r.Granted, o.Granted), max(r.Peak, o.Peak)
}

// Sort puts records in the order of time: of when they begin, and then of when they end.
func Sort(records []Record) {
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Or(a.From.Compare(b.From), a.At.Compare(b.At)) })
}

// Workload is what a command line does, the same whatever its arguments are: the name of its
// program and, if that is given one, the script or module. It is empty for none.
func Workload(command []string) string {
	if len(command) == 0 {
		return ""
	}
	program := filepath.Base(command[0])
	for i, arg := range command[1:] {
		switch {
		case (arg == "-m" || arg == "-jar" || arg == "-c") && i+2 < len(command):
			return program + " " + arg + " " + command[i+2]
		case strings.HasPrefix(arg, "-"):
		case strings.ContainsAny(arg, "./"):
			return program + " " + filepath.Base(arg)
		}
	}
	return program
}
