package abi

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// A Constant is an integer known to both languages.
type Constant struct {
	Name, Type string // Type is u32, u64, i32 or i64
	Value      string // as the description writes it: a number or an expression
	Doc        string

	line  int
	value *big.Int
}

// A requirement is a comparison that the description's values have to satisfy,
// and why.
type requirement struct {
	that, because string
	line          int
}

// ranges are the least and the greatest value of a constant's types. The least
// of i32 and i64 has no literal in C.
var ranges = map[string][2]*big.Int{
	"u32": {big.NewInt(0), power(32)},
	"u64": {big.NewInt(0), power(64)},
	"i32": {new(big.Int).Neg(power(31)), power(31)},
	"i64": {new(big.Int).Neg(power(63)), power(63)},
}

// power is 2^bits - 1.
func power(bits uint) *big.Int {
	one := big.NewInt(1)
	return new(big.Int).Sub(new(big.Int).Lsh(one, bits), one)
}

func (p *layoutParser) constant(c *Constant) {
	p.named(c.line, c.Name, c.Name, c.Doc)
	if _, ok := p.constants[c.Name]; ok {
		p.fault(c.line, c.Name, "constant appears twice")
	}
	p.goNamed(c.line, c.Name, p.layout.goName(c.Name))
	c.value = p.constantValue(c)
	p.constants[c.Name] = c.value
}

// constantValue is nil where it reports a fault, or where the value follows from a constant whose fault is reported.
func (p *layoutParser) constantValue(c *Constant) *big.Int {
	bounds, ok := ranges[c.Type]
	if !ok {
		p.fault(c.line, c.Name, "constants are u32, u64, i32 or i64, not %q", c.Type)
		return nil
	}
	if c.Value == "" {
		p.fault(c.line, c.Name, "value is missing")
		return nil
	}
	if !commentable(c.Value) { // a formula becomes part of the comment
		p.fault(c.line, c.Name, "value %q must be one line without control characters", c.Value)
		return nil
	}
	value, err := p.value(c.Value)
	if errors.Is(err, errFaulty) {
		return nil
	}
	if err != nil {
		p.fault(c.line, c.Name, "value %q: %w", c.Value, err)
		return nil
	}
	if value.Cmp(bounds[0]) < 0 || value.Cmp(bounds[1]) > 0 {
		p.fault(c.line, c.Name, "value %q gives %d, outside of %s: %d to %d", c.Value, value, c.Type, bounds[0], bounds[1])
		return nil
	}
	return value
}

var plainNumber = regexp.MustCompile(`^-?[0-9.][0-9a-zA-Z_.]*$`)

// value reads a number or computes an expression of numbers and earlier constants.
func (p *layoutParser) value(text string) (*big.Int, error) {
	if plainNumber.MatchString(text) {
		return readNumber(text)
	}
	return p.scope().evaluate(text)
}

func (p *layoutParser) scope() scope {
	return scope{
		constant: func(name string) (*big.Int, bool) {
			value, ok := p.constants[name]
			return value, ok
		},
		size: func(name string) (*big.Int, bool) {
			s, ok := p.structs[name]
			return big.NewInt(int64(s.Size)), ok
		},
	}
}

var namePart = regexp.MustCompile(`[a-z][a-z0-9_]*`)

// requirement reports a comparison that does not hold, with the values of the
// constants in it: one of them has to follow the other.
func (p *layoutParser) requirement(r requirement) {
	if r.because == "" {
		p.fault(r.line, "requires", "because is missing")
	}
	if r.that == "" {
		p.fault(r.line, "requires", "that is missing")
		return
	}
	ok, err := p.scope().holds(r.that)
	if err != nil {
		p.fault(r.line, "requires", "%q: %w", r.that, err)
		return
	}
	if ok {
		return
	}
	var have []string
	seen := map[string]bool{}
	for _, name := range namePart.FindAllString(r.that, -1) {
		if value, ok := p.constants[name]; ok && !seen[name] {
			have = append(have, fmt.Sprintf("%s is %d", name, value))
		} else if s, ok := p.structs[name]; ok && !seen[name] {
			have = append(have, fmt.Sprintf("size(%s) is %d", name, s.Size))
		}
		seen[name] = true
	}
	p.fault(r.line, "requires", "%s, because %s; here %s", r.that, r.because, strings.Join(have, ", "))
}

// hexadecimal says whether the description writes a bit pattern and not a count.
func (c Constant) hexadecimal() bool {
	return c.formula() == "" && strings.HasPrefix(c.Value, "0x")
}

// formula is a computed constant's expression, "" for a plain number.
func (c Constant) formula() string {
	if numberPattern.MatchString(c.Value) {
		return ""
	}
	return c.Value
}

// note is what people read of a constant in both languages.
func (c Constant) note() string {
	if c.formula() == "" {
		return c.Doc
	}
	return strings.TrimSpace(c.Doc + " Computed: " + c.formula() + ".")
}

// cText is the value as C reads it, without its sign.
func (c Constant) cText() string {
	if c.hexadecimal() {
		return c.Value
	}
	return new(big.Int).Abs(c.value).String()
}

// goText is the value as people write it in Go: large numbers in groups of three
// digits.
func (c Constant) goText() string {
	if c.hexadecimal() {
		return c.Value
	}
	digits := new(big.Int).Abs(c.value).String()
	if len(digits) > 4 {
		for at := len(digits) - 3; at > 0; at -= 3 {
			digits = digits[:at] + "_" + digits[at:]
		}
	}
	if c.value.Sign() < 0 {
		return "-" + digits
	}
	return digits
}
