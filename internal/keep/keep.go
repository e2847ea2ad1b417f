// Package keep exists until every pinned dependency is imported by the product.
package keep
import (
 _ "go.temporal.io/sdk/client"
 _ "go.temporal.io/sdk/worker"
 _ "go.temporal.io/sdk/testsuite"
 _ "go.temporal.io/api/enums/v1"
 _ "github.com/jackc/pgx/v5/pgxpool"
 _ "github.com/jackc/pgx/v5/stdlib"
 _ "github.com/twmb/franz-go/pkg/kgo"
 _ "github.com/twmb/franz-go/pkg/kmsg"
 _ "github.com/twmb/franz-go/pkg/kadm"
 _ "github.com/prometheus/client_golang/prometheus/promhttp"
 _ "github.com/alecthomas/kong"
 _ "github.com/pressly/goose/v3"
 _ "github.com/pressly/goose/v3/lock"
 _ "golang.org/x/sync/errgroup"
 _ "golang.org/x/time/rate"
 _ "golang.org/x/sys/unix"
 _ "golang.org/x/term"
 _ "github.com/google/uuid"
)
