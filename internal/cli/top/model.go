// Package top is what `divvy top` shows: a model, how keys and news change it, and how it looks. It reads nothing and
// writes nothing.
package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

// Snapshot is what was found at a moment.
type Snapshot struct {
	At   time.Time
	GPUs []GPU
	// Shares are those of all GPUs; a tenant has one on each of its GPUs.
	Shares []Share
	// Notes say what is wrong, one line each.
	Notes []string
	// Fault says why nothing was found, else empty.
	Fault string
}

// GPU is one GPU. Amounts are bytes.
type GPU struct {
	// Key tells it from all others; Machine is the simulated machine's name, empty for the real one.
	Key, Machine string
	Index        int
	Model        string
	Capacity     uint64
	// Used is all that is in use, nil where the driver does not tell, and so are the figures below.
	Used        *uint64
	Utilisation *int // percent
	Celsius     *int
	Watts       *int
	// Served is false where no agent tells of shares.
	Served bool
}

// Share is one tenant's share of one GPU. Amounts are bytes.
type Share struct {
	// Tenant is its tenant's id, and GPU the GPU's key.
	Tenant, GPU string
	Name, User  string
	Command     string
	State       string
	Index       int // of the GPU
	Limit, Used uint64
	// Entitled is the part of the GPU's time that it has a right to, and Time what it had in the last second, both in
	// percent; Time is nil where it is not known.
	Entitled float64
	Time     *float64
	// HeldBack is the part of the last second in which it had to wait for GPU time, in percent.
	HeldBack float64
	Refused  uint64 // allocations, since it began
	// Turns is there for a swap share.
	Turns *Turns
	Age   time.Duration
	// Details are lines for who wants to know all. They are asked for while they are on the screen.
	Details func() []string
}

// Turns is what people read of a swap share's turns: whether it has one and in how long that changes, what was moved, and what of
// its memory is on the GPU.
type Turns struct {
	Turn, Moved, Resident string
}

// key tells a share from all others.
func (s Share) key() string { return s.Tenant + "@" + s.GPU }

// pane is what is shown.
type pane int

const (
	paneList pane = iota
	paneDetails
	paneHelp
	paneFilter
	paneStop
)

// kept is how many figures are kept for sparklines.
const kept = 60

// Order is by which figure shares are sorted.
type Order string

// Orders are those through which one can go.
var Orders = []Order{"gpu", "time", "used", "limit", "held back", "user", "name", "age"}

// Model is the state of the screen. The zero value is not one; New makes it.
type Model struct {
	width, height int
	interval      time.Duration
	now           Snapshot
	asked         bool // whether there was a snapshot
	pane          pane
	paused        bool
	order         Order
	filter        string
	typed         string // while a filter is written
	selected      string // the share's key
	from          int    // the first row of the list that is seen, or follow
	read          int    // the first row of help or details that is seen
	said          string // what the last command came to
	utilisation   map[string][]float64
	times         map[string][]float64
	// plain is without colours, and whole without limits of height.
	plain, whole bool
}

// New is a model for a screen of so many columns and rows that gets a snapshot at each interval.
func New(width, height int, interval time.Duration) Model {
	return Model{width: width, height: height, interval: interval, order: Orders[0], from: follow, utilisation: map[string][]float64{}, times: map[string][]float64{}}
}

// Plain is the model without colours and limits of height, for one that is printed.
func (m Model) Plain() Model {
	m.plain, m.whole = true, true
	return m
}

// Ordered is the model with its shares in an order; an unknown one changes nothing.
func (m Model) Ordered(by Order) Model {
	if slices.Contains(Orders, by) {
		m.order = by
	}
	return m
}

// Key is a key that was pressed, by its name such as "a", "up" or "enter".
type Key string

// Size is that of the screen, in columns and rows.
type Size struct{ Width, Height int }

// Done is what a command came to, for the last line.
type Done string

// Effect is what is to be done outside. Nothing is to be done where both are empty.
type Effect struct {
	Quit bool
	// Stop is the id of the tenant that is to end.
	Stop string
}

// Update is the model after a Snapshot, Key, Size or Done, and what is to be done.
func (m Model) Update(news any) (Model, Effect) {
	switch news := news.(type) {
	case Snapshot:
		return m.learn(news), Effect{}
	case Size:
		m.width, m.height = news.Width, news.Height
	case Done:
		m.said = string(news)
	case Key:
		return m.press(news)
	}
	return m, Effect{}
}

// learn takes a snapshot, unless the screen is to stay as it is. What was known stays where nothing was found.
func (m Model) learn(found Snapshot) Model {
	if m.paused {
		return m
	}
	if found.Fault != "" {
		m.now.Fault, m.asked = found.Fault, true
		return m
	}
	found.Shares = slices.Clone(found.Shares)
	for i := range found.Shares {
		found.Shares[i].makePlain()
	}
	m.now, m.asked = found, true
	utilisation, times := map[string][]float64{}, map[string][]float64{}
	for _, g := range found.GPUs {
		if g.Utilisation != nil {
			utilisation[g.Key] = remember(m.utilisation[g.Key], float64(*g.Utilisation))
		}
	}
	for _, s := range found.Shares {
		if s.Time != nil {
			times[s.key()] = remember(m.times[s.key()], *s.Time)
		}
	}
	m.utilisation, m.times = utilisation, times
	if shown := m.shown(); m.at(shown) < 0 && len(shown) > 0 {
		m.selected = shown[0].key()
	}
	return m
}

// mostOfName bounds what others named, in characters.
const mostOfName = 200

// makePlain makes what others named fit for the screen, once.
func (s *Share) makePlain() {
	for _, name := range []*string{&s.Name, &s.User, &s.Command, &s.State} {
		*name = text.Plain(*name, mostOfName)
	}
}

func remember(past []float64, one float64) []float64 {
	return append(slices.Clone(past[max(0, len(past)-kept+1):]), one)
}

// shown are the shares that the filter leaves, in their order.
func (m Model) shown() []Share {
	var shown []Share
	for _, s := range m.now.Shares {
		if m.matches(s) {
			shown = append(shown, s)
		}
	}
	slices.SortStableFunc(shown, m.compare)
	return shown
}

// matches reports whether a share has the filter's text in its name, user, command or state.
func (m Model) matches(s Share) bool {
	wanted := strings.ToLower(m.filter)
	return wanted == "" || slices.ContainsFunc([]string{s.Name, s.User, s.Command, s.State}, func(said string) bool {
		return strings.Contains(strings.ToLower(said), wanted)
	})
}

func (m Model) compare(a, b Share) int {
	switch m.order {
	case "time":
		return cmp.Compare(orZero(b.Time), orZero(a.Time))
	case "used":
		return cmp.Compare(b.Used, a.Used)
	case "limit":
		return cmp.Compare(b.Limit, a.Limit)
	case "held back":
		return cmp.Compare(b.HeldBack, a.HeldBack)
	case "user":
		return cmp.Compare(a.User, b.User)
	case "name":
		return cmp.Compare(a.Name, b.Name)
	case "age":
		return cmp.Compare(b.Age, a.Age)
	}
	return cmp.Compare(m.place(a.GPU), m.place(b.GPU))
}

// place is the number of a GPU among all.
func (m Model) place(key string) int {
	return slices.IndexFunc(m.now.GPUs, func(g GPU) bool { return g.Key == key })
}

func orZero(n *float64) float64 {
	if n == nil {
		return 0
	}
	return *n
}

// at is the number of the selected share among those that are shown, -1 for none.
func (m Model) at(shown []Share) int {
	return slices.IndexFunc(shown, func(s Share) bool { return s.key() == m.selected })
}

// current is the selected share.
func (m Model) current() (Share, bool) {
	shown := m.shown()
	at := m.at(shown)
	if at < 0 {
		return Share{}, false
	}
	return shown[at], true
}
