package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"portage/internal/operate"
	"portage/internal/units"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// calls are the routes with what each takes and what it answers by status, as the handlers have it.
var calls = map[string]struct {
	takes   any
	answers map[string]any
}{
	"GET /v1/plan":                              {nil, map[string]any{"200": planner.Plan{}}},
	"POST /v1/rebalance/plan":                   {protocol.RebalanceInput{}, map[string]any{"200": Planned{}, "202": Planned{}}},
	"POST /v1/rebalance":                        {protocol.RebalanceInput{}, map[string]any{"200": RebalanceStarted{}, "202": RebalanceStarted{}}},
	"GET /v1/rebalance":                         {nil, map[string]any{"200": protocol.RebalanceStatus{}}},
	"POST /v1/rebalance/undo":                   {protocol.RebalanceInput{}, map[string]any{"200": RebalanceStarted{}, "202": RebalanceStarted{}}},
	"POST /v1/rebalance/approve":                {Approve{}, map[string]any{"200": Done{}}},
	"POST /v1/rebalance/limits":                 {operate.LimitsChange{}, map[string]any{"200": Done{}}},
	"POST /v1/rebalance/pause":                  {Signed{}, map[string]any{"200": Done{}}},
	"POST /v1/rebalance/resume":                 {Signed{}, map[string]any{"200": Done{}}},
	"POST /v1/rebalance/skip":                   {Skip{}, map[string]any{"200": Done{}}},
	"POST /v1/rebalance/cancel":                 {Signed{}, map[string]any{"200": Done{}, "202": Done{}}},
	"GET /v1/moves":                             {nil, map[string]any{"200": []metastore.Move{}}},
	"POST /v1/moves":                            {protocol.MoveInput{}, map[string]any{"200": MoveStarted{}, "202": MoveStarted{}}},
	"GET /v1/moves/{topic}/{partition}":         {nil, map[string]any{"200": operate.MoveView{}}},
	"POST /v1/moves/{topic}/{partition}/tune":   {protocol.Tune{}, map[string]any{"200": Done{}}},
	"POST /v1/moves/{topic}/{partition}/cancel": {Signed{}, map[string]any{"200": Done{}, "202": Done{}}},
	"POST /v1/swaps":                            {protocol.SwapInput{}, map[string]any{"200": MoveStarted{}, "202": MoveStarted{}}},
	"GET /v1/members":                           {nil, map[string]any{"200": []operate.Member{}}},
	"GET /v1/scores":                            {nil, map[string]any{"200": []operate.Score{}}},
	"GET /v1/pause":                             {nil, map[string]any{"200": protocol.Pause{}}},
	"POST /v1/pause":                            {Signed{}, map[string]any{"200": Done{}}},
	"POST /v1/resume":                           {Signed{}, map[string]any{"200": Done{}}},
	"POST /v1/decommissions":                    {protocol.DecommissionInput{}, map[string]any{"200": DecommissionStarted{}, "202": DecommissionStarted{}}},
	"GET /v1/decommissions/{broker}":            {nil, map[string]any{"200": protocol.DecommissionStatus{}}},
	"GET /v1/decommissions/{broker}/check":      {nil, map[string]any{"200": protocol.DrainCheck{}}},
	"GET /v1/decommissions/{broker}/verdict":    {nil, map[string]any{"200": operate.Verdict{}, "202": operate.Verdict{}}},
	"POST /v1/decommissions/{broker}/cancel":    {Signed{}, map[string]any{"200": Done{}, "202": Done{}}},
}

// notForCallers are fields of inputs that only workflows set; a call that has one is refused.
var notForCallers = map[string]bool{"RebalanceInput.carried": true, "DecommissionInput.carried": true, "RebalanceInput.dryRun": true, "MoveInput.earlier": true, "MoveInput.plan": true, "MoveInput.planSeq": true,
	"SwapInput.earlier": true, "SwapInput.plan": true, "SwapInput.planSeq": true, "DecommissionInput.dryRun": true}

type openAPIFile struct {
	OpenAPI    string                                  `yaml:"openapi"`
	Paths      map[string]map[string]*openAPIOperation `yaml:"paths"`
	Components struct {
		Schemas map[string]openAPISchema `yaml:"schemas"`
	} `yaml:"components"`
}

type openAPIOperation struct {
	Security   *[]any                               `yaml:"security"`
	Parameters []struct{ Name, In string }          `yaml:"parameters"`
	Body       struct{ Content map[string]content } `yaml:"requestBody"`
	Responses  map[string]struct {
		Ref     string             `yaml:"$ref"`
		Content map[string]content `yaml:"content"`
	} `yaml:"responses"`
}

type content struct{ Schema openAPISchema }

type openAPISchema struct {
	Ref        string                   `yaml:"$ref,omitempty"`
	Type       any                      `yaml:"type,omitempty"`
	Format     string                   `yaml:"format,omitempty"`
	Items      *openAPISchema           `yaml:"items,omitempty"`
	Additional *openAPISchema           `yaml:"additionalProperties,omitempty"`
	Properties map[string]openAPISchema `yaml:"properties,omitempty"`
	Required   []string                 `yaml:"required,omitempty"`
}

func readOpenAPI(t *testing.T) openAPIFile {
	t.Helper()
	var file openAPIFile
	if err := yaml.Unmarshal(openAPI, &file); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(file.OpenAPI, "3.1") {
		t.Fatalf("openapi %q", file.OpenAPI)
	}
	return file
}

// schemaOf is how a Go type is described; types gathers the structs that are described by name.
func schemaOf(typ reflect.Type, types map[string]reflect.Type) openAPISchema {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ {
	case reflect.TypeFor[time.Time]():
		return openAPISchema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[uuid.UUID]():
		return openAPISchema{Type: "string", Format: "uuid"}
	case reflect.TypeFor[units.Duration](), reflect.TypeFor[planner.Goal]():
		return openAPISchema{Type: "string"}
	case reflect.TypeFor[units.ByteSize]():
		return openAPISchema{Type: []any{"integer", "string"}}
	case reflect.TypeFor[json.RawMessage]():
		return openAPISchema{Type: "object"}
	}
	switch typ.Kind() {
	case reflect.String:
		return openAPISchema{Type: "string"}
	case reflect.Bool:
		return openAPISchema{Type: "boolean"}
	case reflect.Float64:
		return openAPISchema{Type: "number"}
	case reflect.Int, reflect.Int64:
		return openAPISchema{Type: "integer", Format: "int64"}
	case reflect.Int32:
		return openAPISchema{Type: "integer", Format: "int32"}
	case reflect.Slice, reflect.Array:
		items := schemaOf(typ.Elem(), types)
		return openAPISchema{Type: "array", Items: &items}
	case reflect.Map:
		values := schemaOf(typ.Elem(), types)
		return openAPISchema{Type: "object", Additional: &values}
	case reflect.Struct:
		if types[typ.Name()] == nil {
			types[typ.Name()] = typ
			for name, field := range jsonFields(typ) {
				if !notForCallers[typ.Name()+"."+name] {
					schemaOf(field, types)
				}
			}
		} else if types[typ.Name()] != typ {
			panic("two types are called " + typ.Name())
		}
		return openAPISchema{Ref: "#/components/schemas/" + typ.Name()}
	}
	panic("no schema for " + typ.String())
}

// jsonFields are the keys a struct is written with, those of embedded structs included.
func jsonFields(typ reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			maps.Copy(fields, jsonFields(f.Type))
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && f.IsExported() {
			fields[name] = f.Type
		}
	}
	return fields
}

// described is what the file should say of all types that travel.
func described() (schemas map[string]openAPISchema) {
	types := map[string]reflect.Type{}
	schemaOf(reflect.TypeFor[Refusal](), types)
	for _, c := range calls {
		if c.takes != nil {
			schemaOf(reflect.TypeOf(c.takes), types)
		}
		for _, answer := range c.answers {
			schemaOf(reflect.TypeOf(answer), types)
		}
	}
	schemas = map[string]openAPISchema{}
	for name, typ := range types {
		schema := openAPISchema{Type: "object", Properties: map[string]openAPISchema{}}
		for field, fieldType := range jsonFields(typ) {
			if !notForCallers[name+"."+field] {
				schema.Properties[field] = schemaOf(fieldType, types)
			}
		}
		schemas[name] = schema
	}
	return schemas
}

func TestOpenAPIListsExactlyTheRoutes(t *testing.T) {
	file := readOpenAPI(t)
	var listed, served, known []string
	for path, methods := range file.Paths {
		for method, operation := range methods {
			call := strings.ToUpper(method) + " " + path
			listed = append(listed, call)
			open := path == "/openapi.yaml"
			if (operation.Security != nil) != open {
				t.Errorf("%s: only the file itself goes without a token", call)
			}
			for _, part := range strings.Split(path, "/") {
				if strings.HasPrefix(part, "{") && !slices.ContainsFunc(operation.Parameters, func(p struct{ Name, In string }) bool { return p.In == "path" && "{"+p.Name+"}" == part }) {
					t.Errorf("%s does not describe %s", call, part)
				}
			}
			if !open && operation.Responses["default"].Ref != "#/components/responses/Refusal" {
				t.Errorf("%s does not say how it refuses", call)
			}
		}
	}
	served = append(served, "GET /openapi.yaml")
	for pattern := range (&api{}).routes() {
		served = append(served, pattern)
		known = append(known, pattern)
	}
	slices.Sort(listed)
	slices.Sort(served)
	if !slices.Equal(listed, served) {
		t.Errorf("listed are\n%s\nserved are\n%s", strings.Join(listed, "\n"), strings.Join(served, "\n"))
	}
	if slices.Sort(known); !slices.Equal(known, slices.Sorted(maps.Keys(calls))) {
		t.Errorf("the table of this test has other calls than the handlers: %q", known)
	}
}

func TestOpenAPINamesTheTypesOfEachCall(t *testing.T) {
	file := readOpenAPI(t)
	for call, want := range calls {
		method, path, _ := strings.Cut(call, " ")
		operation := file.Paths[path][strings.ToLower(method)]
		if operation == nil {
			t.Errorf("%s is not there", call)
			continue
		}
		if want.takes != nil {
			if got, want := operation.Body.Content["application/json"].Schema, schemaOf(reflect.TypeOf(want.takes), map[string]reflect.Type{}); !reflect.DeepEqual(got, want) {
				t.Errorf("%s takes %+v, described is %+v", call, want, got)
			}
			required := file.Components.Schemas[reflect.TypeOf(want.takes).Name()].Required
			if !slices.Contains(required, "by") || !slices.Contains(required, "reason") {
				t.Errorf("%s changes something, so who and why are required: %q", call, required)
			}
		}
		for status, answer := range want.answers {
			if got, want := operation.Responses[status].Content["application/json"].Schema, schemaOf(reflect.TypeOf(answer), map[string]reflect.Type{}); !reflect.DeepEqual(got, want) {
				t.Errorf("%s answers %s with %+v, described is %+v", call, status, want, got)
			}
		}
		if len(operation.Responses) != len(want.answers)+1 {
			t.Errorf("%s describes %d answers, it has %d and the refusal", call, len(operation.Responses), len(want.answers))
		}
	}
}

func TestOpenAPISchemasAreTheGoTypes(t *testing.T) {
	file, want := readOpenAPI(t), described()
	for name := range file.Components.Schemas {
		if _, ok := want[name]; !ok {
			t.Errorf("schema %s is no type that travels", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got := file.Components.Schemas[name]
		got.Required = nil
		if !reflect.DeepEqual(got, want[name]) {
			text, err := yaml.Marshal(map[string]openAPISchema{name: want[name]})
			t.Errorf("schema %s is not the type; it is (%v)\n%s", name, err, text)
		}
	}
}

// Every code that an answer may have is listed for people, with what it means.
func TestEveryCodeOfTheAPIIsInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, file := range []string{"api.go", "../internal/operate/errors.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\t[cC]ode\w+\s+= "(\w+)"`).FindAllSubmatch(source, -1) {
			codes = append(codes, string(m[1]))
		}
	}
	if len(codes) < 20 {
		t.Fatalf("found only %q", codes)
	}
	for _, code := range codes {
		if !strings.Contains(string(page), fmt.Sprintf("| `%s` |", code)) {
			t.Errorf("docs/http.md has no row for the code %s", code)
		}
	}
	for pattern := range (&api{}).routes() {
		if method, path, _ := strings.Cut(pattern, " "); !strings.Contains(string(page), fmt.Sprintf("| `%s %s` |", method, path)) {
			t.Errorf("docs/http.md has no row for %s", pattern)
		}
	}
}
