package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is an amount of a queue as its administrator writes it, a whole number or text. What it means depends on the unit:
//   - gpus: GPUs, such as 4, "2.5" or "500m", in steps of a thousandth of a GPU;
//   - memory: bytes with a suffix of Kubernetes, such as "80Gi", in steps of a MiB;
//   - cores: whole percent of a GPU's time, such as 30, or 200 for two GPUs.
//
// Reading takes any number and any text, so that a bad amount makes its queue invalid and not unreadable. [Amount.In] judges
// it. The zero value is left out.
type Amount struct {
	text   string
	number bool // it was written without quotes
	given  bool
}

// AmountOf is the amount that means n of what a unit counts.
func AmountOf(n int64, u QueueUnit) Amount {
	return Amount{text: u.Format(n), given: true}
}

// Written is the amount of a text, as between quotes.
func Written(text string) Amount { return Amount{text: text, given: true} }

// IsZero reports whether the amount was left out. An amount of 0 was not.
func (a Amount) IsZero() bool { return !a.given }

// String is the amount as it was written, cut where it is longer than any good one.
func (a Amount) String() string {
	if len(a.text) > mostAmountText {
		return a.text[:mostAmountText] + "…"
	}
	return a.text
}

// MarshalJSON implements json.Marshaler. The amount is written as it was read; one that was left out is null.
func (a Amount) MarshalJSON() ([]byte, error) {
	switch {
	case !a.given:
		return []byte("null"), nil
	case a.number:
		return []byte(a.text), nil
	}
	return json.Marshal(a.text)
}

// UnmarshalJSON implements json.Unmarshaler. Null leaves the amount out.
func (a *Amount) UnmarshalJSON(text []byte) error {
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("read an amount: %w", err)
	}
	switch v := value.(type) {
	case nil:
		*a = Amount{}
	case json.Number:
		*a = Amount{text: v.String(), number: true, given: true}
	case string:
		*a = Amount{text: v, given: true}
	default:
		return fmt.Errorf("read an amount: %.20s is neither a number nor text: write 4, or \"500m\"", text)
	}
	return nil
}

// mostAmountText is longer than every good amount.
const mostAmountText = 32

// written is what an amount looks like. Six digits after the point and the suffix m are a billionth, which is the finest that
// a quantity of Kubernetes keeps exactly.
var written = regexp.MustCompile(`^-?[0-9]{1,19}(\.[0-9]{1,6})?([mkMGTPE]|[KMGTPE]i)?$`)

var (
	errNegative = errors.New("it is negative: give 0 or more")
	errFraction = errors.New("put a number with a fraction or an exponent in quotes")
)

// In is the amount in what a unit counts: thousandths of a GPU, percent or MiB, 0 to [MaxAmount]; 0 where it was left out.
// Its errors say what is wrong and what to write.
func (a Amount) In(u QueueUnit) (int64, error) {
	if !a.given {
		return 0, nil
	}
	if a.number && strings.ContainsAny(a.text, ".eE") {
		return 0, errFraction
	}
	if len(a.text) > mostAmountText || !written.MatchString(a.text) {
		return 0, u.form()
	}
	if a.text[0] == '-' {
		return 0, errNegative
	}
	if u == UnitCores {
		return wholePercent(a.text)
	}
	q, err := resource.ParseQuantity(a.text)
	if err != nil {
		return 0, u.form()
	}
	// The library keeps what is beyond 64 bits as the greatest number, which is beyond the bound as well.
	parts, _ := new(big.Rat).SetString(q.AsDec().String())
	if u == UnitMemory {
		parts.Quo(parts, big.NewRat(1<<20, 1))
	} else {
		parts.Mul(parts, big.NewRat(1000, 1))
	}
	if parts.Cmp(big.NewRat(MaxAmount, 1)) > 0 {
		return 0, u.huge()
	}
	if !parts.IsInt() {
		return 0, u.fine(new(big.Int).Quo(parts.Num(), parts.Denom()).Int64())
	}
	return parts.Num().Int64(), nil
}

func wholePercent(text string) (int64, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, UnitCores.form()
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > MaxAmount {
		return 0, UnitCores.huge()
	}
	return n, nil
}

// form says what an amount looks like.
func (u QueueUnit) form() error {
	switch u {
	case UnitCores:
		return errors.New("give whole percent of a GPU, such as 30, or 200 for two GPUs")
	case UnitMemory:
		return errors.New("give bytes with a suffix, such as 80Gi")
	}
	return errors.New(`give a number of GPUs, such as 4, "2.5" or "500m"`)
}

func (u QueueUnit) huge() error {
	return fmt.Errorf("it is more than any cluster has: give at most %s", u.Format(MaxAmount))
}

// fine says that an amount lies between n and the next.
func (u QueueUnit) fine(n int64) error {
	if u == UnitMemory {
		return fmt.Errorf("it is no whole number of Mi: give %dMi or %dMi", n, n+1)
	}
	return fmt.Errorf("a GPU has thousandths and nothing finer: give %s or %s", u.Format(n), u.Format(n+1))
}

// Format writes n of what a unit counts in the one form that Divvy writes: 2.5 GPUs, 80Gi, 30 percent. [Amount.In] reads it.
func (u QueueUnit) Format(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	switch u {
	case UnitCores:
		return sign + strconv.FormatInt(n, 10)
	case UnitMemory:
		if n > MaxAmount<<3 {
			return fmt.Sprintf("%s%dMi", sign, n)
		}
		return sign + FormatBytes(uint64(n)<<20)
	}
	text := fmt.Sprintf("%s%d.%03d", sign, n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Weigh is a weight in what the unit counts: one is a GPU, a percent, or a GiB, so that a weight that is left out compares
// with others.
func (u QueueUnit) Weigh(weight int64) int64 {
	switch u {
	case UnitCores:
		return weight
	case UnitMemory:
		return weight << 10
	}
	return weight * 1000
}

// queueUse is a [QueueUse] as it is written.
type queueUse struct {
	Model      string    `json:"model,omitempty"`
	Unit       QueueUnit `json:"unit"`
	Guaranteed Amount    `json:"guaranteed"`
	Entitled   Amount    `json:"entitled"`
	Used       Amount    `json:"used"`
	Lent       Amount    `json:"lent"`
	Borrowed   Amount    `json:"borrowed"`
	Demand     Amount    `json:"demand"`
}

// MarshalJSON implements json.Marshaler. Amounts are text in the unit, such as "2.5" or "80Gi".
func (q QueueUse) MarshalJSON() ([]byte, error) {
	of := func(n int64) Amount { return AmountOf(n, q.Unit) }
	return json.Marshal(queueUse{q.Model, q.Unit, of(q.Guaranteed), of(q.Entitled), of(q.Used), of(q.Lent), of(q.Borrowed), of(q.Demand)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (q *QueueUse) UnmarshalJSON(text []byte) error {
	var w queueUse
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*q = QueueUse{Model: w.Model, Unit: w.Unit}
	for _, a := range []struct {
		what    string
		written Amount
		into    *int64
	}{
		{"guaranteed", w.Guaranteed, &q.Guaranteed}, {"entitled", w.Entitled, &q.Entitled}, {"used", w.Used, &q.Used},
		{"lent", w.Lent, &q.Lent}, {"borrowed", w.Borrowed, &q.Borrowed}, {"demand", w.Demand, &q.Demand},
	} {
		n, err := a.written.In(q.Unit)
		if err != nil {
			return fmt.Errorf("read %s %s: %w", a.what, a.written, err)
		}
		*a.into = n
	}
	return nil
}
