package brokeragent

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"portage/brokeragent/control"
)

// openAPIFile is what the tests read of openapi.yaml.
type openAPIFile struct {
	OpenAPI    string `yaml:"openapi"`
	Paths      map[string]map[string]openAPIOperation
	Components struct {
		Schemas map[string]openAPISchema
	}
}

type openAPIOperation struct {
	Security   *[]any
	Parameters []struct{ Name, In string }
	Body       *openAPIContent            `yaml:"requestBody"`
	Responses  map[string]openAPIResponse `yaml:"responses"`
}

type openAPIResponse struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct{ Schema openAPISchema }
}

type openAPIContent struct {
	Content map[string]struct{ Schema openAPISchema }
}

type openAPISchema struct {
	Ref        string          `yaml:"$ref"`
	AllOf      []openAPISchema `yaml:"allOf"`
	Properties map[string]openAPISchema
	Items      *openAPISchema
	Type       any
	Enum       []string
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

// properties are the names a schema allows, those of its parts included.
func (f openAPIFile) properties(t *testing.T, s openAPISchema) map[string]openAPISchema {
	t.Helper()
	all := map[string]openAPISchema{}
	if s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		target, ok := f.Components.Schemas[name]
		if !ok {
			t.Fatalf("%s is not there", s.Ref)
		}
		return f.properties(t, target)
	}
	for _, part := range s.AllOf {
		for name, p := range f.properties(t, part) {
			all[name] = p
		}
	}
	for name, p := range s.Properties {
		all[name] = p
	}
	return all
}

func TestOpenAPIListsExactlyTheRoutes(t *testing.T) {
	file := readOpenAPI(t)
	var listed, served []string
	for path, methods := range file.Paths {
		for method, operation := range methods {
			listed = append(listed, strings.ToUpper(method)+" "+path)
			var inPath []string
			for _, p := range operation.Parameters {
				if p.In == "path" {
					inPath = append(inPath, "{"+p.Name+"}")
				}
			}
			for _, part := range strings.Split(path, "/") {
				if strings.HasPrefix(part, "{") && !slices.Contains(inPath, part) {
					t.Errorf("%s %s does not describe %s", method, path, part)
				}
			}
			if path != "/v1/openapi.yaml" && operation.Responses["default"].Ref != "#/components/responses/Refusal" {
				t.Errorf("%s %s does not say how it refuses", method, path)
			}
			if (operation.Security != nil) != (path == "/v1/openapi.yaml") {
				t.Errorf("%s %s: only the file itself goes without a token", method, path)
			}
		}
	}
	served = append(served, "GET /v1/openapi.yaml")
	for pattern := range (&Agent{}).routes() {
		served = append(served, pattern)
	}
	sort.Strings(listed)
	sort.Strings(served)
	if !slices.Equal(listed, served) {
		t.Errorf("listed are\n%s\nserved are\n%s", strings.Join(listed, "\n"), strings.Join(served, "\n"))
	}
}

func TestOpenAPISchemasAreTheGoTypes(t *testing.T) {
	file := readOpenAPI(t)
	types := map[string]reflect.Type{}
	for _, v := range []any{control.EnsureRequest{}, control.EnsureAnswer{}, control.CopyRequest{}, control.SessionStatus{}, control.FreezeRequest{}, control.FreezeAnswer{},
		control.DrainRequest{}, control.DrainAnswer{}, control.LookRequest{}, control.AbandonRequest{}, control.PromoteRequest{}, control.RetainedCopies{}, control.HoldRequest{}, control.QuarantinePurge{}, control.TrashPurge{}, control.PromoteAnswer{}, control.PartitionStatus{}, control.AgentStatus{}, control.HeldRows{}, control.Listing{},
		control.OffsetsRequest{}, control.OffsetsAnswer{}, control.PurgeAnswer{}, control.Error{}} {
		collect(reflect.TypeOf(v), types)
	}
	for name := range file.Components.Schemas {
		if types[name] == nil {
			t.Errorf("schema %s is no type that travels", name)
		}
	}
	for name, typ := range types {
		schema, ok := file.Components.Schemas[name]
		if !ok {
			t.Errorf("%s has no schema", name)
			continue
		}
		fields, described := jsonFields(typ), file.properties(t, schema)
		for field, goType := range fields {
			p, ok := described[field]
			if !ok {
				t.Errorf("%s does not describe %q", name, field)
				continue
			}
			for goType.Kind() == reflect.Pointer {
				goType = goType.Elem()
			}
			if nested := types[goType.Name()]; nested == goType && p.Ref != "#/components/schemas/"+goType.Name() {
				t.Errorf("%s.%s is a %s, described as %+v", name, field, goType.Name(), p)
			}
		}
		for field := range described {
			if fields[field] == nil {
				t.Errorf("%s describes %q, which does not exist", name, field)
			}
		}
	}
}

// collect gathers the struct types of package control that travel in one.
func collect(typ reflect.Type, types map[string]reflect.Type) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ.PkgPath() != reflect.TypeFor[control.Error]().PkgPath() || types[typ.Name()] != nil {
		return
	}
	types[typ.Name()] = typ
	for i := range typ.NumField() {
		collect(typ.Field(i).Type, types)
	}
}

// jsonFields are the keys a struct is written with, those of embedded structs included.
func jsonFields(typ reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			for name, t := range jsonFields(f.Type) {
				fields[name] = t
			}
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

// The requests and answers of each route are the types of its handler.
func TestOpenAPIOperationsNameTheirTypes(t *testing.T) {
	file := readOpenAPI(t)
	for path, want := range map[string][2]string{
		"POST /v1/moves/{id}/ensure":            {"EnsureRequest", "EnsureAnswer"},
		"POST /v1/moves/{id}/copy":              {"CopyRequest", "SessionStatus"},
		"POST /v1/moves/{id}/freeze":            {"FreezeRequest", "FreezeAnswer"},
		"POST /v1/moves/{id}/drain":             {"DrainRequest", "DrainAnswer"},
		"POST /v1/moves/{id}/promote":           {"PromoteRequest", "PromoteAnswer"},
		"POST /v1/moves/{id}/look":              {"LookRequest", "PartitionStatus"},
		"POST /v1/moves/{id}/abandon":           {"AbandonRequest", ""},
		"GET /v1/moves/{id}":                    {"", "SessionStatus"},
		"GET /v1/status":                        {"", "AgentStatus"},
		"GET /v1/rows":                          {"", "HeldRows"},
		"GET /v1/partitions/{topicID}/{number}": {"", "PartitionStatus"},
		"GET /v1/copies/{id}/listing":           {"", "Listing"},
		"POST /v1/offsets/commit":               {"OffsetsRequest", "OffsetsAnswer"},
		"POST /v1/offsets/fetch":                {"OffsetsRequest", "OffsetsAnswer"},
		"POST /v1/trash/purge":                  {"TrashPurge", "PurgeAnswer"},
	} {
		method, route, _ := strings.Cut(path, " ")
		operation := file.Paths[route][strings.ToLower(method)]
		var request string
		if operation.Body != nil {
			request = operation.Body.Content["application/json"].Schema.Ref
		}
		answer := operation.Responses["200"].Content["application/json"].Schema.Ref
		for i, got := range []string{request, answer} {
			if strings.TrimPrefix(got, "#/components/schemas/") != want[i] {
				t.Errorf("%s takes and gives %q and %q, want %q", path, request, answer, want)
				break
			}
		}
	}
	bytesPerSec := file.Paths["/v1/moves/{id}/limit"]["post"].Body.Content["application/json"].Schema.Properties
	if _, ok := bytesPerSec["bytesPerSec"]; !ok || len(bytesPerSec) != 1 {
		t.Errorf("limit takes %v", bytesPerSec)
	}
}

// The codes are read from the source, so that a new one can not be forgotten here.
func TestOpenAPIListsExactlyTheErrorCodes(t *testing.T) {
	file := readOpenAPI(t)
	source, err := parser.ParseFile(token.NewFileSet(), "control/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, decl := range source.Decls {
		consts, ok := decl.(*ast.GenDecl)
		if !ok || consts.Tok != token.CONST {
			continue
		}
		for _, spec := range consts.Specs {
			value := spec.(*ast.ValueSpec)
			if !strings.HasPrefix(value.Names[0].Name, "Code") {
				continue
			}
			code, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, code)
		}
	}
	listed := slices.Clone(file.Components.Schemas["Error"].Properties["code"].Enum)
	sort.Strings(codes)
	sort.Strings(listed)
	if len(codes) == 0 || !slices.Equal(codes, listed) {
		t.Errorf("listed are %q, used are %q", listed, codes)
	}
}

func TestAuthenticationComesBeforeEverythingButTheDescription(t *testing.T) {
	a := &Agent{cfg: Config{Token: "secret"}, registry: prometheus.NewRegistry()}
	handler := a.handler()
	ask := func(method, path, authorization, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	if w := ask("GET", "/v1/openapi.yaml", "", ""); w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "openapi: 3.1") {
		t.Errorf("the description: %d", w.Code)
	}
	if w := ask("GET", "/healthz", "", ""); w.Code != http.StatusOK {
		t.Errorf("health: %d", w.Code)
	}
	replace := strings.NewReplacer("{id}", "m", "{topicID}", "t", "{number}", "0")
	for pattern := range a.routes() {
		method, path, _ := strings.Cut(pattern, " ")
		for _, authorization := range []string{"", "Bearer wrong", "secret", "Bearer secret "} {
			w := ask(method, replace.Replace(path), authorization, "not even JSON")
			var refusal control.Error
			if err := json.Unmarshal(w.Body.Bytes(), &refusal); err != nil || w.Code != http.StatusUnauthorized || refusal.Code != control.CodeUnauthorized || refusal.Message == "" {
				t.Errorf("%s with %q: %d %s", pattern, authorization, w.Code, w.Body)
			}
		}
	}
	// With the token, a body is read strictly, and the path and the body name one move.
	for body, what := range map[string]string{
		`{"moveId":"m","nonsense":1}`: "an unknown key",
		`{"moveId":"other"}`:          "another move",
		`{}`:                          "no move",
		`[]`:                          "a list",
	} {
		w := ask("POST", "/v1/moves/m/freeze", "Bearer secret", body)
		var refusal control.Error
		if err := json.Unmarshal(w.Body.Bytes(), &refusal); err != nil || w.Code != http.StatusBadRequest || refusal.Code != control.CodeBadRequest {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
}

func TestEveryRefusalTravelsWithItsStatus(t *testing.T) {
	for code, want := range map[string]int{
		control.CodeUnauthorized: 401, control.CodeBadRequest: 400, control.CodeUnfenced: 400, control.CodeNotFound: 404, control.CodeStaleToken: 409,
		control.CodeStaleController: 409, control.CodeRowMoved: 409, control.CodeNotOpen: 409, control.CodeBusy: 503, control.CodeMetastoreAway: 503, control.CodeSourceAway: 503,
		control.CodeNoRoom: 507, control.CodeStorage: 500, control.CodeInternal: 500,
	} {
		w := httptest.NewRecorder()
		writeError(w, control.Errorf(code, "why"))
		if w.Code != want {
			t.Errorf("%s travels with %d, want %d", code, w.Code, want)
		}
	}
}
