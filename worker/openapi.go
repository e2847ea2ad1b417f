package worker

import (
	_ "embed"
	"net/http"
)

// openAPI describes the HTTP API. It is no secret: it is served without the token.
//
//go:embed openapi.yaml
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
}
