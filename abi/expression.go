package abi

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// maxExpression bounds an expression's length and maxShift its left shifts, so
// that no description makes the generator slow.
const (
	maxExpression = 200
	maxShift      = 128
)

// errFaulty says that an expression needs a constant whose fault is reported.
var errFaulty = errors.New("it needs a faulty constant")

// A scope gives expressions the values of constants and the sizes of structures. The value of a faulty constant is nil.
type scope struct {
	constant func(name string) (*big.Int, bool)
	size     func(structure string) (*big.Int, bool)
}

var tokens = regexp.MustCompile(`[a-z][a-z0-9_]*|[0-9][0-9a-zA-Z_]*|<<|<=|>=|==|[-+*/%()<>]|\S`)

// An expression is a text that is being read from left to right. From the loosest
// to the tightest its operators are: one comparison, <<, + and -, * / and %.
type expression struct {
	scope  scope
	tokens []string
}

// evaluate computes an integer.
func (s scope) evaluate(text string) (*big.Int, error) {
	e, err := s.read(text)
	if err != nil {
		return nil, err
	}
	value, err := e.shift()
	if err == nil && len(e.tokens) > 0 {
		err = fmt.Errorf("%q is not expected here", e.tokens[0])
	}
	return value, err
}

// holds decides a comparison.
func (s scope) holds(text string) (bool, error) {
	e, err := s.read(text)
	if err != nil {
		return false, err
	}
	left, err := e.shift()
	if err != nil {
		return false, err
	}
	operator := e.take()
	wanted, ok := map[string]func(int) bool{
		"<": func(c int) bool { return c < 0 }, "<=": func(c int) bool { return c <= 0 }, "==": func(c int) bool { return c == 0 },
		">": func(c int) bool { return c > 0 }, ">=": func(c int) bool { return c >= 0 },
	}[operator]
	if !ok {
		return false, fmt.Errorf("a comparison is missing")
	}
	right, err := e.shift()
	if err != nil {
		return false, err
	}
	if len(e.tokens) > 0 {
		return false, fmt.Errorf("%q is not expected here", e.tokens[0])
	}
	return wanted(left.Cmp(right)), nil
}

func (s scope) read(text string) (*expression, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("an expression has at most %d characters", maxExpression)
	}
	return &expression{scope: s, tokens: tokens.FindAllString(text, -1)}, nil
}

// take returns the next token, "" at the end.
func (e *expression) take() string {
	if len(e.tokens) == 0 {
		return ""
	}
	token := e.tokens[0]
	e.tokens = e.tokens[1:]
	return token
}

// next reports whether the next token is one of the given, and takes it if so.
func (e *expression) next(operators ...string) (string, bool) {
	for _, operator := range operators {
		if len(e.tokens) > 0 && e.tokens[0] == operator {
			return e.take(), true
		}
	}
	return "", false
}

func (e *expression) shift() (*big.Int, error) {
	return e.chain(e.sum, func(_ string, left, right *big.Int) (*big.Int, error) {
		if right.Sign() < 0 || right.Cmp(big.NewInt(maxShift)) > 0 {
			return nil, fmt.Errorf("a shift by %d is not between 0 and %d", right, maxShift)
		}
		return left.Lsh(left, uint(right.Int64())), nil
	}, "<<")
}

func (e *expression) sum() (*big.Int, error) {
	return e.chain(e.product, func(operator string, left, right *big.Int) (*big.Int, error) {
		if operator == "-" {
			return left.Sub(left, right), nil
		}
		return left.Add(left, right), nil
	}, "+", "-")
}

func (e *expression) product() (*big.Int, error) {
	return e.chain(e.operand, func(operator string, left, right *big.Int) (*big.Int, error) {
		switch {
		case operator == "*":
			return left.Mul(left, right), nil
		case right.Sign() == 0:
			return nil, fmt.Errorf("division by 0")
		case operator == "/":
			return left.Quo(left, right), nil
		}
		return left.Rem(left, right), nil
	}, "*", "/", "%")
}

// chain computes operands that operators of one rank join, from the left.
func (e *expression) chain(operand func() (*big.Int, error), apply func(string, *big.Int, *big.Int) (*big.Int, error), operators ...string) (*big.Int, error) {
	left, err := operand()
	for err == nil {
		operator, ok := e.next(operators...)
		if !ok {
			break
		}
		var right *big.Int
		if right, err = operand(); err == nil {
			left, err = apply(operator, left, right)
		}
	}
	return left, err
}

// operand reads a number, a constant, bits(n), size(structure) or an expression
// in parentheses.
func (e *expression) operand() (*big.Int, error) {
	token := e.take()
	switch {
	case token == "":
		return nil, fmt.Errorf("it ends too early")
	case token == "(":
		return e.closed(e.shift())
	case token == "bits" && len(e.tokens) > 0 && e.tokens[0] == "(":
		e.take()
		value, err := e.closed(e.shift())
		if err != nil {
			return nil, err
		}
		return big.NewInt(int64(value.BitLen())), nil
	case token == "size" && len(e.tokens) > 0 && e.tokens[0] == "(":
		e.take()
		name := e.take()
		size, ok := e.scope.size(name)
		if !ok {
			return e.closed(nil, fmt.Errorf("%q is not an earlier struct", name))
		}
		return e.closed(new(big.Int).Set(size), nil)
	case token[0] >= '0' && token[0] <= '9':
		return readNumber(token)
	}
	value, ok := e.scope.constant(token)
	if !ok {
		return nil, fmt.Errorf("%q is not an earlier constant", token)
	}
	if value == nil {
		return nil, errFaulty
	}
	return new(big.Int).Set(value), nil
}

func (e *expression) closed(value *big.Int, err error) (*big.Int, error) {
	if err != nil {
		return nil, err
	}
	if _, ok := e.next(")"); !ok {
		return nil, fmt.Errorf("a closing parenthesis is missing")
	}
	return value, nil
}

var numberPattern = regexp.MustCompile(`^-?(0|[1-9][0-9]*|[1-9][0-9]{0,2}(_[0-9]{3})+|0x[0-9a-f]+)$`)

// readNumber reads 512, 1_000_000 or 0x8000: what looks the same in C and Go. A
// leading zero would be octal in both.
func readNumber(text string) (*big.Int, error) {
	if !numberPattern.MatchString(text) {
		return nil, fmt.Errorf("%q is not an integer such as 512, 1_000_000 or 0x8000", text)
	}
	value, ok := new(big.Int).SetString(strings.ReplaceAll(text, "_", ""), 0)
	if !ok {
		return nil, fmt.Errorf("%q is not an integer", text)
	}
	return value, nil
}
