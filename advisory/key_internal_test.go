package advisory

import (
	"bufio"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// The vectors are part of the documentation: programs in other languages are built
// on them. They were computed by another implementation (Python's hashlib).
var vectors = []struct {
	schema, prefix, name string
	number               int64
	text                 string
}{
	{"public", "sqllock_", "order:42", 1838396926035086750, "sqllock_19834c43947dcd9ee79d8acc3add10a59dd4e3c8c3541d3d"},
	{"public", "sqllock_", "Order:42", -3798039982442588711, "sqllock_cb4aa6c243c755d984afc65194f5dbd537b8d7e6680238ce"},
	{"shop", "sqllock_", "order:42", 6707607332512365459, "sqllock_5d1635549b347b93f83744dc00de21e19f76f7e455daf91b"},
	{"shop", "", "jób 🔒", -6710102644004013463, "sqllock_a2e0ed3269bb3a69f2b1858c3332ab3c931dd3dc373f48a0"},
	{"public", "sqllock_", strings.Repeat("x", 255), -9062446500108024659, "sqllock_823bb8ec4d1444ad3169bf47b8bec87bb12a408fadfa39f3"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		if k := newNamespace(sqldb.Postgres, v.schema, v.prefix).key(v.name); k != Int64(v.number) {
			t.Errorf("%.20q on PostgreSQL: %s", v.name, k)
		}
		for _, kind := range []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB} {
			k := newNamespace(kind, v.schema, v.prefix).key(v.name)
			if k != Raw(v.text) {
				t.Errorf("%.20q on %s: %s", v.name, kind, k)
			}
			if on, err := k.on(kind); on != k || err != nil {
				t.Errorf("%.20q on %s is not what the server compares: %s, %v", v.name, kind, on, err)
			}
		}
	}
}

// What the documentation of KeyOf shows are the vectors.
func TestVectorsDocumented(t *testing.T) {
	f, err := os.Open("keyof.go")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines, found := bufio.NewScanner(f), 0
	for lines.Scan() {
		for _, v := range vectors {
			if strings.Contains(lines.Text(), v.text) && strings.Contains(lines.Text(), v.name) && strings.Contains(lines.Text(), v.schema) && strings.Contains(lines.Text(), strconv.FormatInt(v.number, 10)) {
				found++
			}
		}
	}
	if found != 4 {
		t.Errorf("%d vectors are documented", found)
	}
}

// Nothing that differs in a part gives one key: the parts are told apart.
func TestNamespaces(t *testing.T) {
	seen := map[Key][3]string{}
	for _, v := range [][3]string{
		{"a", "b", "c"},
		{"ab", "", "c"},
		{"a", "bc", "x"},
		{"a", "", "bc"},
		{"", "ab", "c"},
		{"a", "b", "C"},
		{"a", "b", "c "},
		{"a", "b", "ç"},
		{"A", "b", "c"},
		{"a", "B", "c"},
	} {
		k := newNamespace(sqldb.Postgres, v[0], v[1]).key(v[2])
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q are one key", v, other)
		}
		seen[k] = v
	}
	// A database that is Shop and shop for one server must not have two locks.
	one, two := newNamespace(sqldb.MySQL, "Shop", "Lock_").key("job"), newNamespace(sqldb.MySQL, "shop", "lock_").key("job")
	if one != two {
		t.Errorf("Shop and shop: %s, %s", one, two)
	}
	if three := newNamespace(sqldb.MySQL, "shop", "lock_").key("Job"); one == three {
		t.Error("job and Job are one key")
	}
}

func TestPairs(t *testing.T) {
	numbers := []int32{0, 1, -1, 42, math.MaxInt32, math.MinInt32}
	for _, a := range numbers {
		for _, b := range numbers {
			k := Pair(a, b)
			if x, y := k.pair(); x != a || y != b {
				t.Errorf("Pair(%d, %d) has become (%d, %d)", a, b, x, y)
			}
			if keyOfHalves(k.halves()) != k {
				t.Errorf("%s is not found in pg_locks", k)
			}
			if k == Int64(k.n) {
				t.Errorf("%s is an int64", k)
			}
		}
	}
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 32, -1 << 32} {
		if k := Int64(n); keyOfHalves(k.halves()) != k {
			t.Errorf("%s is not found in pg_locks", k)
		}
	}
}

func TestKeyString(t *testing.T) {
	for want, k := range map[string]Key{"42": Int64(42), "-1": Int64(-1), "(1, -42)": Pair(1, -42), "their name": Raw("their name"), "no key": {}} {
		if k.String() != want {
			t.Errorf("%q, want %q", k.String(), want)
		}
	}
}

func TestKeyOn(t *testing.T) {
	unsupported, invalid := errors.ErrUnsupported, lock.ErrInvalid
	for _, c := range []struct {
		what string
		key  Key
		kind sqldb.Kind
		want error
	}{
		{"Int64", Int64(1), sqldb.Postgres, nil},
		{"Pair", Pair(1, 2), sqldb.Postgres, nil},
		{"Raw", Raw("a"), sqldb.Postgres, unsupported},
		{"Int64", Int64(1), sqldb.MySQL, unsupported},
		{"Pair", Pair(1, 2), sqldb.MariaDB, unsupported},
		{"Raw", Raw("a"), sqldb.SQLite, unsupported},
		{"none", Key{}, sqldb.Postgres, invalid},
		{"none", Key{}, sqldb.MySQL, invalid},
		{"empty", Raw(""), sqldb.MySQL, invalid},
		{"empty", Raw(""), sqldb.MariaDB, invalid},
		{"NUL", Raw("a\x00"), sqldb.MySQL, invalid},
		{"NUL", Raw("a\x00"), sqldb.MariaDB, invalid},
		{"not UTF-8", Raw("a\xff"), sqldb.MySQL, invalid},
		{"64 characters", Raw(strings.Repeat("é", 64)), sqldb.MySQL, nil},
		{"65 characters", Raw(strings.Repeat("a", 65)), sqldb.MySQL, invalid},
		{"192 bytes", Raw(strings.Repeat("é", 96)), sqldb.MariaDB, nil},
		{"193 bytes", Raw(strings.Repeat("a", 193)), sqldb.MariaDB, invalid},
		{"emoji", Raw("🔒"), sqldb.MySQL, invalid},
		{"emoji", Raw("🔒"), sqldb.MariaDB, nil},
		{"É", Raw("É"), sqldb.MySQL, invalid},
		{"É", Raw("É"), sqldb.MariaDB, nil},
	} {
		if _, err := c.key.on(c.kind); !errors.Is(err, c.want) {
			t.Errorf("%s on %s: %v", c.what, c.kind, err)
		}
	}
	upper, err := Raw("JOB é").on(sqldb.MySQL)
	if err != nil || upper != Raw("job é") {
		t.Errorf("on MySQL: %s, %v", upper, err)
	}
	if k, err := Raw("JOB").on(sqldb.MariaDB); err != nil || k != Raw("JOB") {
		t.Errorf("on MariaDB: %s, %v", k, err)
	}
}
