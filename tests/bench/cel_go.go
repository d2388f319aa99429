// Package main asks cel-go, the engine of Kubernetes, what `tests.bench.cel_engines` asks of other
// engines: it reads a question and writes answers, both in JSON. See there for their fields.
package main

import (
	"encoding/json"
	"log"
	"math"
	"os"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/cel/library"
)

const rounds = 5

type activation = map[string]any

type question struct {
	Expressions map[string]string `json:"expressions"`
	Activations []activation      `json:"activations"`
}

type answer struct {
	Compiling float64    `json:"compiling"`
	Fresh     float64    `json:"fresh"`
	Ready     float64    `json:"ready"`
	Values    []*float64 `json:"values"`
}

func main() {
	var asked question
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	check(decoder.Decode(&asked))
	env, err := cel.NewEnv(
		cel.Variable("node", cel.DynType), cel.Variable("object", cel.DynType), cel.Variable("pod", cel.DynType),
		cel.OptionalTypes(), ext.Strings(), ext.Math(), library.Quantity(),
	)
	check(err)
	for _, values := range asked.Activations {
		numbered(values)
	}
	answers := map[string]answer{}
	for name, text := range asked.Expressions {
		answers[name] = answered(env, text, asked.Activations)
	}
	check(json.NewEncoder(os.Stdout).Encode(answers))
}

func answered(env *cel.Env, text string, activations []activation) answer {
	program := compiled(env, text)
	ready := make([]activation, len(activations))
	for i, values := range activations {
		ready[i] = converted(env, values)
	}
	each := float64(len(activations))
	found := answer{
		Compiling: leastTime(func() { compiled(env, text) }),
		Fresh: leastTime(func() {
			for _, values := range activations {
				_, _, _ = program.Eval(converted(env, values))
			}
		}) / each,
		Ready: leastTime(func() {
			for _, values := range ready {
				_, _, _ = program.Eval(values)
			}
		}) / each,
	}
	for _, values := range ready {
		value, _, err := program.Eval(values)
		found.Values = append(found.Values, number(value, err))
	}
	return found
}

func compiled(env *cel.Env, text string) cel.Program {
	ast, issues := env.Compile(text)
	check(issues.Err())
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize))
	check(err)
	return program
}

// converted gives an activation as values of the engine; what is inside them it converts when read.
func converted(env *cel.Env, values activation) activation {
	found := activation{}
	for name, value := range values {
		found[name] = env.CELTypeAdapter().NativeToValue(value)
	}
	return found
}

// numbered gives the numbers of a decoded value the types that they have in CEL, in place.
func numbered(value any) any {
	switch value := value.(type) {
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			double, err := value.Float64()
			check(err)
			return double
		}
		integer, err := value.Int64()
		check(err)
		return integer
	case map[string]any:
		for key, inner := range value {
			value[key] = numbered(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = numbered(inner)
		}
	}
	return value
}

func number(value ref.Val, err error) *float64 {
	if err != nil {
		return nil
	}
	var found float64
	switch value := value.(type) {
	case types.Bool:
		if value {
			found = 1
		}
	case types.Int:
		found = float64(value)
	case types.Double:
		found = float64(value)
	default:
		return nil
	}
	return &found
}

// leastTime gives the least CPU time of this process that something takes, in microseconds.
func leastTime(act func()) float64 {
	best := math.Inf(1)
	for range rounds {
		start := processTime()
		act()
		best = min(best, float64(processTime()-start)/1000)
	}
	return best
}

func processTime() int64 {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now))
	return now.Nano()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
