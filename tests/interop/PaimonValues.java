import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.variant.GenericVariant;
import org.apache.paimon.data.variant.Variant;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeChecks;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

/** Values as JSON: decimals as text, times as microseconds since 1970, bytes as hexadecimal text. */
final class PaimonValues {
    private PaimonValues() {}

    static List<DataType> types(JsonNode names) {
        List<DataType> types = new ArrayList<>();
        names.forEach(one -> types.add(DataTypeJsonParser.parseDataType(one)));
        return types;
    }

    static GenericRow row(RowKind kind, List<DataType> types, JsonNode values) {
        GenericRow row = new GenericRow(kind, types.size());
        for (int at = 0; at < types.size(); at++) {
            row.setField(at, value(types.get(at), values.get(at)));
        }
        return row;
    }

    static Object value(DataType type, JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return node.asBoolean();
            case TINYINT:
                return (byte) node.asInt();
            case SMALLINT:
                return (short) node.asInt();
            case INTEGER:
            case DATE:
            case TIME_WITHOUT_TIME_ZONE:
                return node.asInt();
            case BIGINT:
                return node.asLong();
            case FLOAT:
                return (float) node.asDouble();
            case DOUBLE:
                return node.asDouble();
            case VARCHAR:
            case CHAR:
                return BinaryString.fromString(node.asText());
            case BLOB:
                return Blob.fromData(HexFormat.of().parseHex(node.asText()));
            case VARIANT:
                return GenericVariant.fromJson(node.asText());
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(node.asText());
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                return Decimal.fromBigDecimal(
                        new BigDecimal(node.asText()), decimal.getPrecision(), decimal.getScale());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromMicros(node.asLong());
            default:
                throw new IllegalArgumentException("no JSON for " + type);
        }
    }

    static List<Object> values(RowType type, InternalRow row) {
        List<Object> values = new ArrayList<>();
        for (int at = 0; at < type.getFieldCount(); at++) {
            DataType kind = type.getTypeAt(at);
            Object value = InternalRow.createFieldGetter(kind, at).getFieldOrNull(row);
            if (value instanceof Timestamp) {
                assert DataTypeChecks.getPrecision(kind) <= 6;
                value = ((Timestamp) value).toMicros();
            } else if (value instanceof byte[]) {
                value = HexFormat.of().formatHex((byte[]) value);
            } else if (value instanceof Blob) {
                value = HexFormat.of().formatHex(((Blob) value).toData());
            } else if (value instanceof Variant) {
                value = ((Variant) value).toJson();
            } else if (value instanceof Float) {
                value = ((Float) value).doubleValue();
            } else if (value instanceof BinaryString || value instanceof Decimal) {
                value = value.toString();
            }
            values.add(value);
        }
        return values;
    }
}
